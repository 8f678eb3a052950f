import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";

const KINDS: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
};

/** Serves the files of some folders, each under its name. */
export class PageServer implements AsyncDisposable {
  readonly #server: Server;

  private constructor(folders: Readonly<Record<string, string>>) {
    this.#server = createServer((request, answer) => {
      const path = normalize(decodeURIComponent(new URL(request.url ?? "/", "http://x").pathname));
      const [, name = "", ...rest] = path.split("/");
      const folder = folders[name];
      const file = folder === undefined ? undefined : join(folder, ...rest);
      readFile(file ?? "/nowhere").then(
        (content) => {
          answer.setHeader("content-type", KINDS[extname(path)] ?? "application/octet-stream");
          answer.end(content);
        },
        () => {
          answer.statusCode = 404;
          answer.end();
        },
      );
    });
  }

  static async start(folders: Readonly<Record<string, string>>): Promise<PageServer> {
    const pages = new PageServer(folders);
    await new Promise<void>((resolve) => pages.#server.listen(0, "127.0.0.1", resolve));
    return pages;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
