/**
 * A real browser for tests: the one that `PROM_BROWSER` names, or the headless Chromium of the npm
 * package `@sparticuz/chromium`, unpacked once into `.cache/browser` of the repository. Driven over
 * two pipes by the DevTools protocol.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { brotliDecompressSync } from "node:zlib";

const repository = fileURLToPath(new URL("../../../../../", import.meta.url));

const FLAGS = [
  "--headless",
  // The container or virtual machine that tests run in is the sandbox, and root cannot have another.
  "--no-sandbox",
  "--disable-gpu",
  "--disable-dev-shm-usage",
  "--disable-background-networking",
  "--no-first-run",
  "--remote-debugging-pipe",
];

interface Installed {
  bin: string;
  libraries: string | undefined;
}

function find(): Installed {
  const told = process.env.PROM_BROWSER;
  if (told !== undefined && told !== "") {
    return { bin: told, libraries: undefined };
  }
  if (process.platform !== "linux" || process.arch !== "x64") {
    throw new Error(
      "tests need a browser: say where a Chrome or Chromium is in PROM_BROWSER " +
        "(the one that npm brings is for Linux on x64 only)",
    );
  }
  const manifest = createRequire(import.meta.url).resolve("@sparticuz/chromium");
  const packed = join(manifest, "../../../bin");
  if (!existsSync(join(packed, "chromium.br"))) {
    throw new Error("tests need a browser: run `npm ci` in sdk/typescript, or set PROM_BROWSER");
  }
  const { version } = JSON.parse(readFileSync(join(packed, "../package.json"), "utf8"));
  const home = join(repository, ".cache/browser", version);
  if (!existsSync(home)) {
    unpack(packed, home);
  }
  return { bin: join(home, "chromium"), libraries: join(home, "lib") };
}

/** Unpacks beside, then renames: half a browser is never found. */
function unpack(packed: string, home: string): void {
  mkdirSync(dirname(home), { recursive: true });
  const beside = mkdtempSync(`${home}-`);
  const read = (name: string) => brotliDecompressSync(readFileSync(join(packed, name)));
  writeFileSync(join(beside, "chromium"), read("chromium.br"), { mode: 0o755 });
  for (const name of ["al2023.tar.br", "swiftshader.tar.br"]) {
    execFileSync("tar", ["-x", "-C", beside], { input: read(name) });
  }
  try {
    renameSync(beside, home);
  } catch (error) {
    rmSync(beside, { recursive: true });
    // Another test was quicker.
    if (!existsSync(home)) {
      throw error;
    }
  }
}

interface Answer {
  id?: number;
  method?: string;
  params?: { exceptionDetails?: { exception?: { description?: string }; text?: string } };
  result?: unknown;
  error?: { message: string };
}

export class Chromium implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #profile: string;
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  /** What pages threw where nobody caught it. */
  readonly thrown: string[] = [];
  #number = 0;

  private constructor(child: ChildProcess, profile: string) {
    this.#child = child;
    this.#profile = profile;
    let rest = "";
    (child.stdio[4] as Readable).on("data", (chunk: Buffer) => {
      const parts = (rest + chunk.toString()).split("\0");
      rest = parts.pop() ?? "";
      for (const part of parts) {
        this.#hear(JSON.parse(part) as Answer);
      }
    });
    child.once("exit", (code) => {
      for (const resolve of this.#waiting.values()) {
        resolve({ error: { message: `the browser ended with code ${code}` } });
      }
    });
  }

  static async start(): Promise<Chromium> {
    const { bin, libraries } = find();
    const profile = mkdtempSync(join(tmpdir(), "promethean-browser-"));
    const env = libraries === undefined ? {} : { LD_LIBRARY_PATH: libraries };
    const child = spawn(bin, [...FLAGS, `--user-data-dir=${profile}`], {
      stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
      env: { ...process.env, ...env },
    });
    const failed = new Promise<never>((_resolve, reject) => {
      child.once("error", (error) => reject(new Error(`cannot run ${bin}: ${error.message}`)));
    });
    const browser = new Chromium(child, profile);
    await Promise.race([browser.send("Browser.getVersion"), failed]);
    return browser;
  }

  /** Opens a page, and waits until it has loaded. */
  async open(url: string): Promise<Page> {
    const { targetId } = (await this.send("Target.createTarget", { url: "about:blank" })) as {
      targetId: string;
    };
    const { sessionId } = (await this.send("Target.attachToTarget", {
      targetId,
      flatten: true,
    })) as { sessionId: string };
    await this.send("Runtime.enable", {}, sessionId);
    await this.send("Page.navigate", { url }, sessionId);
    const page = new Page(this, sessionId);
    await page.evaluate(
      "new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', done))",
    );
    return page;
  }

  send(method: string, params: object = {}, sessionId?: string): Promise<unknown> {
    this.#number += 1;
    const id = this.#number;
    const answered = new Promise<Answer>((resolve) => this.#waiting.set(id, resolve));
    const text = JSON.stringify({ id, method, params, sessionId });
    (this.#child.stdio[3] as Writable).write(`${text}\0`);
    return answered.then((answer) => {
      if (answer.error !== undefined) {
        throw new Error(`${method}: ${answer.error.message}`);
      }
      return answer.result;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once("exit", resolve));
    const late = setTimeout(() => this.#child.kill("SIGKILL"), 5_000);
    // It ends its other processes first, which would write on.
    this.send("Browser.close").catch(() => {});
    await ended;
    clearTimeout(late);
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }

  #hear(answer: Answer): void {
    if (answer.id !== undefined) {
      this.#waiting.get(answer.id)?.(answer);
      this.#waiting.delete(answer.id);
    } else if (answer.method === "Runtime.exceptionThrown") {
      const details = answer.params?.exceptionDetails;
      this.thrown.push(details?.exception?.description ?? details?.text ?? "");
    }
  }
}

export class Page {
  readonly #browser: Chromium;
  readonly #session: string;

  constructor(browser: Chromium, session: string) {
    this.#browser = browser;
    this.#session = session;
  }

  /** The value of an expression, which may be a promise. */
  async evaluate(expression: string): Promise<unknown> {
    const answer = (await this.#browser.send(
      "Runtime.evaluate",
      { expression, awaitPromise: true, returnByValue: true },
      this.#session,
    )) as {
      result: { value?: unknown };
      exceptionDetails?: { exception?: { description?: string }; text: string };
    };
    const failure = answer.exceptionDetails;
    if (failure !== undefined) {
      throw new Error(failure.exception?.description ?? failure.text);
    }
    return answer.result.value;
  }

  /** Calls a function that a module of the page exports. */
  call(module: string, name: string, ...values: unknown[]): Promise<unknown> {
    const list = values.map((value) => JSON.stringify(value)).join(", ");
    const [from, what] = [JSON.stringify(module), JSON.stringify(name)];
    return this.evaluate(`import(${from}).then((module) => module[${what}](${list}))`);
  }
}
