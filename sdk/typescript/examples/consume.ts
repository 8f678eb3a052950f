/**
 * Consumes heartbeats as the group `ops`, four at a time, until Ctrl-C, or until so many have come.
 *
 *     npm run example consume [COUNT]
 */
import { connect } from "promethean";

const count = Number(process.argv[2] ?? Number.POSITIVE_INFINITY);
const stop = new AbortController();
process.once("SIGINT", () => stop.abort());

await using bus = await connect({
  onState: ({ state, error }) => console.error(error ? `${state} (${error.message})` : state),
});

let handled = 0;
const consumer = await bus.consume(
  "heartbeat.received",
  { group: "ops", from: "earliest", concurrency: 4, signal: stop.signal },
  async (event, ctx) => {
    console.log(`${event.key} ${JSON.stringify(event.payload)} (attempt ${ctx.attempt})`);
    handled += 1;
    if (handled >= count) {
      stop.abort();
    }
  },
);
await consumer.finished;
