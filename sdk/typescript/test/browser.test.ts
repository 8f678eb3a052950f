import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { harness } from "../src/harness/index.js";
import { Chromium, type Page } from "./browser/chromium.js";
import { PageServer } from "./browser/page-server.js";

const folder = (path: string) => fileURLToPath(new URL(path, import.meta.url));

let browser: Chromium;
let pages: PageServer;

before(async () => {
  pages = await PageServer.start({
    src: folder("../src"),
    test: folder("../test"),
    pages: folder("../../test/browser"),
    valibot: folder("../../node_modules/valibot/dist"),
  });
  browser = await Chromium.start();
});

after(async () => {
  await browser[Symbol.asyncDispose]();
  await pages[Symbol.asyncDispose]();
});

const scenarios = "/test/browser/scenarios.js";
const numbers = (count: number) => Array.from({ length: count }, (_, n) => n);

async function page(): Promise<Page> {
  return browser.open(`${pages.origin}/pages/page.html`);
}

test("a page publishes, consumes, follows and asks", async () => {
  await using h = await harness({ origins: [pages.origin] });
  const result = await (await page()).call(scenarios, "everything", h.url);
  assert.deepEqual(result, {
    handled: [
      [1, 1, "dev:1"],
      [2, 1, "dev:2"],
      [2, 2, "dev:2"],
    ],
    followed: [
      [1, 1, true],
      [2, 1, false],
    ],
    streamed: [1, 2],
    refused: "schema_invalid",
    behind: 0,
  });
});

for (const [how, act] of [
  ["connections that break", async (h) => void h.dropConnections()],
  ["a server that is killed and comes back", (h) => h.restart({ kill: true })],
  ["a server that is stopped and comes back", (h) => h.restart()],
] as [string, (h: Awaited<ReturnType<typeof harness>>) => Promise<void>][]) {
  test(`a page lives through ${how}`, async () => {
    await using h = await harness({ origins: [pages.origin], store: "disk" });
    const open = await page();
    await open.call(scenarios, "follow", h.url);
    await open.call(scenarios, "publishNumbers", 0, 20);
    const published = open.call(scenarios, "publishNumbers", 20, 60);
    await act(h);
    await published;
    await open.call(scenarios, "publishNumbers", 60, 80);
    const result = (await open.call(scenarios, "followed", 80)) as {
      seen: number[];
      tailed: number[];
      states: string[];
    };
    assert.deepEqual(result.tailed, numbers(80));
    assert.deepEqual(
      result.seen.sort((a, b) => a - b),
      numbers(80),
    );
    assert.ok(result.states.filter((state) => state === "connected").length >= 2, "was cut off");
    const stored: unknown[] = [];
    for await (const event of h.bus.history("numbers")) {
      stored.push(event.payload);
    }
    assert.deepEqual(stored, numbers(80));
  });
}

test("a page of another origin gets nowhere", async () => {
  await using h = await harness();
  const code = await (await page()).call(scenarios, "codeOfConnecting", h.url);
  assert.equal(code, "unreachable");
});

test("nothing was thrown that nobody caught", () => {
  assert.deepEqual(browser.thrown, []);
});
