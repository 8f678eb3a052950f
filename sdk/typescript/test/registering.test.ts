import assert from "node:assert/strict";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { toStandardJsonSchema } from "@valibot/to-json-schema";
import * as v from "valibot";
import { z } from "zod";
import { harness } from "../src/harness/index.js";
import { Bus, type PromError, topic } from "../src/node/index.js";

/** The resource of docs/http.md, played: what is sent is what matters here. */
let server: Server;
let bus: Bus;
const asked: { line: string; body: { schema: unknown; version?: number } }[] = [];
let answer: [number, unknown];

before(async () => {
  server = createServer(async (request, reply) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) {
      chunks.push(chunk as Buffer);
    }
    // The bus also tries to connect now and then, which is not what this is about.
    if (request.method === "POST") {
      const line = `${request.method} ${request.url}`;
      asked.push({ line, body: JSON.parse(Buffer.concat(chunks).toString()) });
    }
    reply.writeHead(answer[0], { "content-type": "application/json" });
    reply.end(JSON.stringify(answer[1]));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  bus = new Bus({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
});

after(async () => {
  await bus.close();
  server.closeAllConnections();
  server.close();
});

const expected = {
  type: "object",
  properties: { pid: { type: "number" } },
  required: ["pid"],
  $schema: "https://json-schema.org/draft/2020-12/schema",
};

for (const [library, schema] of [
  ["zod", z.object({ pid: z.number() })],
  ["valibot", toStandardJsonSchema(v.object({ pid: v.number() }))],
] as const) {
  test(`a typed topic registers what it is validated by: ${library}`, async () => {
    answer = [201, { topic: "beat", version: 2, fingerprint: "f", added: true, plan: {} }];
    const Beat = topic("beat", { schema, version: 2 });
    const registered = await bus.schemas.register(Beat);
    assert.deepEqual(registered, { topic: "beat", version: 2, added: true });
    const { line, body } = asked.at(-1) ?? assert.fail("nothing was asked");
    assert.equal(line, "POST /registry/beat/versions");
    assert.deepEqual(body, { schema: expected, version: 2 });
  });
}

test("what is stored is the input: transforms and defaults come after", async () => {
  answer = [200, { topic: "beat", version: 1, added: false }];
  const Beat = topic("beat", {
    schema: z.object({ n: z.number().default(1), at: z.string().transform((at) => new Date(at)) }),
  });
  const registered = await bus.schemas.register(Beat);
  assert.equal(registered.added, false);
  const schema = asked.at(-1)?.body.schema as { required: string[]; properties: object };
  assert.deepEqual(schema.required, ["at"]);
  assert.deepEqual(Object.keys(schema.properties), ["n", "at"]);
});

test("a validator that cannot say what it is needs a document", async () => {
  const Beat = topic("beat", { schema: v.object({ pid: v.number() }) });
  await assert.rejects(bus.schemas.register(Beat), /toStandardJsonSchema/);
  // A code that this client does not know is what it is.
  answer = [409, { code: "incompatible", detail: "a reader would refuse it", status: 409 }];
  const refused = bus.schemas.register(Beat, { document: { type: "object" }, sample: "all" });
  await assert.rejects(refused, (error: PromError) => {
    assert.deepEqual((error.problem as { status: number }).status, 409);
    return error.code === "incompatible" && !error.retryable;
  });
  assert.deepEqual(asked.at(-1)?.body, { schema: { type: "object" }, sample: "all" });
});

test("the server holds publishers to what was registered", async () => {
  await using h = await harness();
  const Beat = topic("beat", { schema: z.object({ pid: z.number() }), version: 1 });
  const { version, added } = await h.bus.schemas.register(Beat);
  assert.deepEqual([version, added], [1, true]);
  assert.equal((await h.bus.schemas.register(Beat)).added, false, "the same again is the same");
  await h.bus.publish(Beat, { pid: 1 });
  // Whoever does not know the type is held to the same.
  const untyped = h.bus.publish("beat", { pid: "one" });
  await assert.rejects(untyped, (error: PromError) => error.code === "schema_invalid");
  const Narrow = topic("beat", { schema: z.object({ pid: z.string() }), version: 2 });
  const refused = h.bus.schemas.register(Narrow);
  await assert.rejects(refused, (error: PromError) => error.code === "incompatible");
});
