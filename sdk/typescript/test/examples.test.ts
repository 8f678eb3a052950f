import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { harness } from "../src/harness/index.js";
import type { EventRecord } from "../src/index.js";
import { Chromium } from "./browser/chromium.js";

function start(example: string, env: Record<string, string>, ...words: string[]): ChildProcess {
  const file = fileURLToPath(new URL(`../examples/${example}.js`, import.meta.url));
  return spawn(process.execPath, [file, ...words], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
}

/** Runs an example to its end, and gives its lines. */
async function run(example: string, url: string, ...words: string[]): Promise<string[]> {
  return lines(start(example, { PROM_URL: url }, ...words));
}

/** What a program prints until it ends, which it has to do well. */
async function lines(child: ChildProcess): Promise<string[]> {
  let text = "";
  child.stdout?.on("data", (chunk) => {
    text += chunk;
  });
  const [code] = await once(child, "exit");
  assert.equal(code, 0, text);
  return text.trimEnd().split("\n");
}

test("publish, then consume", async () => {
  await using h = await harness();
  const published = await run("publish", h.url);
  assert.match(published[0] ?? "", /^stored \S+ of dev:stt:1 at offset 0$/);
  assert.deepEqual(published.slice(1), [
    "the same again is still at offset 0",
    "stored 2 more, all or none",
  ]);
  const consumed = await run("consume", h.url, "2");
  assert.deepEqual(consumed.sort(), [
    'dev:stt:1 {"pid":1,"name":"stt","host":"dev","cpu_pct":3,"mem_mb":90} (attempt 1)',
    'dev:stt:2 {"pid":2,"name":"stt","host":"dev","cpu_pct":3,"mem_mb":90} (attempt 1)',
  ]);
});

test("retry and park", async () => {
  await using h = await harness();
  assert.deepEqual(await run("retry-and-park", h.url), [
    "done: good, at attempt 1",
    "done: flaky, at attempt 2",
    "parked: hopeless, because nobody knows this job",
    "done: hopeless, at attempt 1",
  ]);
});

test("an example brings its own server, with heartbeats, if none is named", async () => {
  const beats = await lines(start("run", { PROM_URL: "" }, "consume", "3"));
  assert.ok(beats.length >= 3, `${beats.length} beats`);
  assert.match(beats[0] ?? "", /^\S+:\S+:\d+ \{"pid":\d+,.*\} \(attempt 1\)$/);
  const states = await lines(start("run", { PROM_URL: "" }, "snapshot-then-live", "2"));
  assert.match(states[0] ?? "", /^\d+ processes$/);
});

test("snapshot, then live", async () => {
  const folder = await mkdtemp(join(tmpdir(), "promethean-"));
  const manifest = join(folder, "prom.toml");
  await writeFile(
    manifest,
    '[topic."process.state"]\ncompaction = "latest"\nsnapshot = true\nsnapshot_every = "100ms"\n',
  );
  await using h = await harness({ manifest });
  const state = (pid: number, status: string | null) =>
    h.bus.publish("process.state", status === null ? null : { status }, { key: `dev:stt:${pid}` });
  await state(1, "alive");
  await state(1, "stale");
  await state(2, "alive");
  // The snapshot follows its topic a little later.
  const snapshot = `${h.url.replace("ws:", "http:")}/snapshots/process.state`;
  const states = async () => {
    const answer = (await (await fetch(snapshot)).json()) as { states?: { event: EventRecord }[] };
    return (answer.states ?? []).map(({ event }) => (event.payload as { status: string }).status);
  };
  while ((await states()).join() !== "stale,alive") {}
  const child = start("snapshot-then-live", { PROM_URL: h.url }, "2");
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  const seen: string[] = [];
  for await (const line of lines) {
    seen.push(line);
    if (seen.length === 1) {
      await state(1, "alive");
      await state(2, null);
    }
  }
  assert.deepEqual(seen, ["2 processes", "dev:stt:1 alive", "dev:stt:2 gone"]);
  await rm(folder, { recursive: true });
});

/** Whoever adds an example has to say here how it is run. */
test("every example is run by a test", async () => {
  const folder = fileURLToPath(new URL("../../examples", import.meta.url));
  const found = (await readdir(folder)).sort();
  assert.deepEqual(found, [
    "browser",
    "consume.ts",
    "prom.toml",
    "publish.ts",
    "retry-and-park.ts",
    "run.ts",
    "snapshot-then-live.ts",
    "testing",
  ]);
});

test("the page shows processes as they come, change and go, also over a restart", async () => {
  // On any port; the server that it follows is told the page's origin, and the page where that is.
  const server = start("browser/serve", { PROM_URL: "ws://127.0.0.1:1", PORT: "0" });
  const [line] = await once(server.stdout as NodeJS.ReadableStream, "data");
  const address = new URL(/open (\S+)/.exec(String(line))?.[1] ?? "");
  await using h = await harness({ origins: [address.origin], store: "disk" });
  address.searchParams.set("bus", h.url);
  await using browser = await Chromium.start();
  const page = await browser.open(address.href);
  const state = (pid: number, status: string) =>
    h.bus.publish(
      "process.state",
      { name: "stt", host: "dev", pid, cpu_pct: 1.25, mem_mb: 90, status },
      { key: `dev:stt:${pid}` },
    );
  const text = "document.querySelector('#processes').innerText.trim().replace(/\\s+/g, ' ')";
  const shows = (wanted: string) =>
    page.evaluate(`new Promise((resolve) => {
      const look = () => ${text} === ${JSON.stringify(wanted)} && resolve();
      new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
      look();
    })`);
  await state(1, "alive");
  await shows("stt dev 1 1.3 90 alive");
  await state(2, "alive");
  await state(1, "stale");
  await shows("stt dev 1 1.3 90 stale stt dev 2 1.3 90 alive");
  await h.restart({ kill: true });
  await h.bus.publish("process.state", null, { key: "dev:stt:1" });
  await shows("stt dev 2 1.3 90 alive");
  assert.equal(
    await page.evaluate("document.querySelector('#connection').textContent"),
    "connected",
  );
  assert.deepEqual(browser.thrown, []);
  server.kill("SIGTERM");
  const [code] = await once(server, "exit");
  assert.equal(code, 0);
});
