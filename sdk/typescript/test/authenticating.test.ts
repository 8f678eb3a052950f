import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { findBinary, ServerProcess } from "../src/harness/server.js";
import { Bus, connect, PromError } from "../src/node/index.js";
import { ScriptedServer } from "./scripted-server.js";

let directory: string;
let server: ServerProcess;
let url: string;
let token: string;

before(async () => {
  directory = await mkdtemp(join(tmpdir(), "promethean-"));
  const words = ["serve", "--data", directory, "--listen", "127.0.0.1:0"];
  server = await ServerProcess.start({ bin: findBinary(undefined), arguments: words });
  url = `http://127.0.0.1:${server.port}`;
  token = (await readFile(join(directory, "admin.token"), "utf8")).trim();
});

after(async () => {
  assert.equal(await server.stop(), 0);
  await rm(directory, { recursive: true });
});

const refused = (code: string) => (error: unknown) =>
  error instanceof PromError && error.code === code;

test("a token lets in, over WebSocket and HTTP", async () => {
  await using bus = await connect({ url, token });
  await bus.publish("a", 1);
  assert.deepEqual(await bus.groups.lag(), []);
});

test("a token may be fetched whenever it is needed", async () => {
  let asked = 0;
  const fetched = async () => {
    asked += 1;
    return token;
  };
  await using bus = await connect({ url, token: fetched });
  await bus.publish("a", 2);
  bus.reconnect();
  await bus.publish("a", 3);
  assert.equal(asked, 2);
});

test("a wrong token, or none, fails at once and for good", async () => {
  await assert.rejects(connect({ url, token: "wrong" }), refused("unauthorized"));
  await using bus = new Bus({ url, token: "wrong" });
  await assert.rejects(bus.publish("a", 1), refused("unauthorized"));
  await assert.rejects(bus.groups.lag(), refused("unauthorized"));
  assert.equal(bus.state.state, "closed");
});

/** Connects with these in the environment, and with nothing said. */
async function connectWith(environment: Record<string, string>): Promise<void> {
  Object.assign(process.env, environment);
  try {
    await using bus = await connect();
    await bus.publish("a", 4);
  } finally {
    for (const name of Object.keys(environment)) {
      delete process.env[name];
    }
  }
}

test("PROM_URL and PROM_TOKEN_FILE say where and who", async () => {
  const file = join(directory, "admin.token");
  await connectWith({ PROM_URL: url, PROM_TOKEN_FILE: file });
  await connectWith({ PROM_URL: url, PROM_TOKEN: token });
  // As for the command line: a file wins, and what is set to nothing is not set.
  await connectWith({ PROM_URL: url, PROM_TOKEN_FILE: file, PROM_TOKEN: "wrong" });
  await connectWith({ PROM_URL: url, PROM_TOKEN_FILE: file, PROM_TOKEN: "" });
});

test("nobody there is an error after a while", async () => {
  const nobody = connect({ url: "ws://127.0.0.1:1", timeout: "200ms" });
  await assert.rejects(nobody, refused("unreachable"));
  assert.throws(() => new Bus({ url: "ftp://example.org" }), TypeError);
});

test("a token that ends is renewed before it does", async () => {
  const scripted = new ScriptedServer();
  const tokens: string[] = [];
  scripted.answer = (frame) =>
    frame.op === "AUTH"
      ? { op: "OK", corr: frame.corr ?? 0, expires_at: Date.now() + 1_250 }
      : undefined;
  const fetched = () => {
    tokens.push(`t${tokens.length}`);
    return tokens.at(-1) as string;
  };
  await using bus = new Bus({ openSocket: scripted.openSocket, token: fetched });
  await bus.connected();
  const again = await scripted.next((frame) => frame.op === "AUTH");
  assert.deepEqual((again as { token?: string }).token, "t1");
});
