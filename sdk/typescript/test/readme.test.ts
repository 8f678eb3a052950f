import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { harness } from "../src/harness/index.js";

const root = new URL("../../", import.meta.url);
const text = readFileSync(new URL("README.md", root), "utf8");
const snippets = [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map((found) => found[1] as string);
const folder = new URL("dist/readme/", root);

after(() => rmSync(folder, { recursive: true, force: true }));

test("there are snippets, and they are well typed", () => {
  assert.ok(snippets.length >= 7, `${snippets.length} snippets`);
  mkdirSync(folder, { recursive: true });
  for (const [index, snippet] of snippets.entries()) {
    writeFileSync(new URL(`snippet-${index}.ts`, folder), snippet);
  }
  const view = '[views.processes]\ntopic = "process.state"\nfields = { status = "text" }\n';
  writeFileSync(new URL("prom.toml", folder), `version = 1\n\n${view}`);
  // As a user's project would see them: strict, with the types of the package.
  const config = {
    extends: "../../tsconfig.json",
    compilerOptions: { rootDir: ".", outDir: "run", declaration: false, noUnusedLocals: false },
    include: ["*.ts"],
  };
  writeFileSync(new URL("tsconfig.json", folder), JSON.stringify(config));
  const compiler = fileURLToPath(new URL("node_modules/typescript/bin/tsc", root));
  execFileSync(process.execPath, [compiler, "-p", fileURLToPath(folder)], { stdio: "inherit" });
});

for (const [index, snippet] of snippets.entries()) {
  const first = snippet.split("\n").find((line) => line.startsWith("await")) ?? "";
  test(`snippet ${index + 1} runs: ${first}`, async () => {
    await using h = await harness({ manifest: fileURLToPath(new URL("prom.toml", folder)) });
    const file = fileURLToPath(new URL(`run/snippet-${index}.js`, folder));
    const env = { ...process.env, PROM_URL: h.url };
    await promisify(execFile)(process.execPath, [file], { env, timeout: 30_000 });
  });
}
