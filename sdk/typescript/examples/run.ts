/**
 * Runs an example, with a server of its own: in memory, on a free port, with heartbeats of this
 * machine's processes. `PROM_URL` names another one instead.
 *
 *     npm run example NAME [WORDS]
 */
import { readdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { connect } from "promethean";
import { type Harness, harness } from "promethean/harness";

const here = new URL("./", import.meta.url);
const [name = "", ...words] = process.argv.slice(2);

/** The page brings the demo with it: a server has to know where the page comes from. */
const own = name === "browser";
const file = fileURLToPath(new URL(own ? "browser/serve.js" : `${name}.js`, here));

const names = (await readdir(here))
  .filter((found) => /\.js$/.test(found) && found !== "run.js")
  .map((found) => found.slice(0, -3));
if (!own && !names.includes(name)) {
  console.error(`npm run example NAME, with NAME one of: ${["browser", ...names].join(", ")}`);
  process.exit(2);
}

let server: Harness | undefined;
if (!own && !process.env.PROM_URL) {
  const manifest = fileURLToPath(new URL("../../examples/prom.toml", import.meta.url));
  server = await harness({ manifest, arguments: ["--demo"] });
  process.env.PROM_URL = server.url;
  console.error("with a server of its own; PROM_URL names another");
  if (name === "snapshot-then-live") {
    // It is seconds old: wait until there is a state to begin with.
    await using bus = await connect({ url: server.url });
    for await (const _ of bus.tail("process.state.snapshot", { from: "earliest" })) {
      break;
    }
  }
}

process.argv.splice(1, process.argv.length, file, ...words);
await import(file);
await server?.stop();
