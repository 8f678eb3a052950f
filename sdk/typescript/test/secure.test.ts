import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { findBinary, ServerProcess } from "../src/harness/server.js";

const certificates = fileURLToPath(new URL("../../test/certificates/", import.meta.url));
const client = new URL("../src/node/index.js", import.meta.url).href;

/** What a user's program does. Whom Node trusts is said when it starts, hence another process. */
const program = `
  const { connect } = await import(process.argv[1]);
  const bus = await connect({ url: process.argv[2], timeout: 5_000 });
  await bus.publish("a", { n: 1 });
  const events = bus.stream("a", { group: "g", from: "earliest" });
  for await (const event of events) {
    await event.ack();
    break;
  }
  const [lag] = await bus.groups.lag();
  console.log(JSON.stringify([lag.group, lag.events]));
  await bus.close();
`;

let directory: string;
let server: ServerProcess;

before(async () => {
  directory = await mkdtemp(join(tmpdir(), "promethean-"));
  const key = join(directory, "server.key");
  await copyFile(join(certificates, "server.key"), key);
  await chmod(key, 0o600);
  const words = ["serve", "--data", join(directory, "data"), "--listen", "127.0.0.1:0"];
  words.push("--tls-cert", join(certificates, "server.pem"), "--tls-key", key);
  server = await ServerProcess.start({ bin: findBinary(undefined), arguments: words });
});

after(async () => {
  await server.stop();
  await rm(directory, { recursive: true });
});

async function run(trusted: Record<string, string>): Promise<string> {
  const words = ["--input-type=module", "-e", program, client, `wss://127.0.0.1:${server.port}`];
  const env = {
    ...process.env,
    ...trusted,
    PROM_TOKEN_FILE: join(directory, "data", "admin.token"),
  };
  const { stdout } = await promisify(execFile)(process.execPath, words, { env });
  return stdout.trim();
}

test("wss, and https, with an authority that this program trusts", async () => {
  const said = await run({ NODE_EXTRA_CA_CERTS: join(certificates, "ca.pem") });
  assert.equal(said, '["g",0]');
});

test("a server that nobody vouches for is not talked to", async () => {
  await assert.rejects(run({}), /certificate/);
});
