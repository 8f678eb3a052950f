/**
 * Serves the page with live process states, and runs the demo that fills it.
 *
 *     npm run example browser
 *
 * With `PROM_URL` the page follows that server instead; it has to allow the page's origin
 * (`prom dev --demo --origin http://127.0.0.1:5173`).
 */
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { harness } from "promethean/harness";

const root = new URL("../../../", import.meta.url);
const port = Number(process.env.PORT ?? 5173);

/** Where each kind of address is kept. */
function fileOf(path: string): URL | undefined {
  if (path === "/") {
    return new URL("examples/browser/index.html", root);
  }
  if (path === "/app.js") {
    return new URL("dist/examples/browser/app.js", root);
  }
  const module = /^\/promethean\/([\w-]+\.js)$/.exec(path)?.[1];
  return module === undefined ? undefined : new URL(`dist/src/${module}`, root);
}

const server = createServer(async (request, answer) => {
  const file = fileOf(new URL(request.url ?? "/", "http://page").pathname);
  if (file === undefined) {
    answer.writeHead(404).end();
    return;
  }
  const kind = file.pathname.endsWith(".js") ? "text/javascript" : "text/html";
  answer.writeHead(200, { "content-type": `${kind}; charset=utf-8` }).end(await readFile(file));
});
await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

const told = process.env.PROM_URL;
const demo = told ? undefined : await harness({ origins: [origin], arguments: ["--demo"] });
const bus = told ?? demo?.url ?? "";
console.log(`open ${origin}/?bus=${encodeURIComponent(bus)}`);

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, async () => {
    server.closeAllConnections();
    server.close();
    await demo?.stop();
  });
}
