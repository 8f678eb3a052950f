/** What runs inside of the browser. Values go in and out as JSON. */
import * as v from "valibot";
import { Bus, connect, PromError, topic } from "../../src/index.js";

const Beat = topic("heartbeat.received", {
  schema: v.object({ pid: v.number(), host: v.string() }),
  key: (beat) => `${beat.host}:${beat.pid}`,
});

export async function everything(url: string) {
  const bus = await connect({ url });
  const handled: unknown[] = [];
  const consumer = await bus.consume(Beat, { group: "page" }, async (event, ctx) => {
    handled.push([event.payload.pid, ctx.attempt, event.key]);
    if (event.payload.pid === 2 && ctx.attempt === 1) {
      throw ctx.retry({ after: "1ms" });
    }
    await ctx.publish("process.seen", event.payload.pid);
  });
  const tail = bus.tail("process.*");
  await tail.ready;
  const first = await bus.publish(Beat, { pid: 1, host: "dev" });
  await bus.publish(Beat, { pid: 2, host: "dev" });
  const followed: unknown[] = [];
  for await (const event of tail) {
    followed.push([event.payload, event.caused_by?.length, event.caused_by?.[0] === first.id]);
    if (followed.length === 2) {
      break;
    }
  }
  await consumer.caughtUp();
  const stream = bus.stream("process.seen", { group: "stream", from: "earliest" });
  const streamed: unknown[] = [];
  for await (const event of stream) {
    streamed.push(event.payload);
    await event.ack();
    if (streamed.length === 2) {
      break;
    }
  }
  const refused = await bus
    .publish(Beat, { pid: "x", host: "dev" } as never)
    .catch((error: unknown) => (error instanceof PromError ? error.code : String(error)));
  const lag = await bus.groups.lag("page");
  await bus.close();
  return { handled, followed, streamed, refused, behind: lag[0]?.events };
}

let bus: Bus;
const seen: number[] = [];
const tailed: number[] = [];
const states: string[] = [];
let heard = () => {};

/** Begins to follow, and goes on doing so between calls. */
export async function follow(url: string) {
  bus = new Bus({ url, onState: (change) => states.push(change.state) });
  await bus.connected();
  await bus.consume("numbers", { group: "page", from: "earliest" }, (event) => {
    seen.push(event.payload as number);
    heard();
  });
  const tail = bus.tail("numbers", { from: "earliest" });
  void (async () => {
    for await (const event of tail) {
      tailed.push(event.payload as number);
      heard();
    }
  })();
}

export async function publishNumbers(from: number, to: number) {
  const publishes: Promise<unknown>[] = [];
  for (let n = from; n < to; n += 1) {
    publishes.push(bus.publish("numbers", n));
  }
  await Promise.all(publishes);
}

export async function followed(count: number) {
  while (new Set(seen).size < count || tailed.length < count) {
    await new Promise<void>((resolve) => {
      heard = resolve;
    });
  }
  return { seen: [...new Set(seen)], tailed, states };
}

export async function codeOfConnecting(url: string) {
  return connect({ url, timeout: 500 }).then(
    () => "connected",
    (error: unknown) => (error instanceof PromError ? error.code : String(error)),
  );
}
