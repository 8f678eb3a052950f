/**
 * What becomes of events that fail: one is tried again, one is parked, and comes back once the
 * handler is mended.
 *
 *     npm run example retry-and-park
 */
import { connect, newEventId } from "promethean";

await using bus = await connect();

// Names of its own: nothing of an earlier run gets in the way.
const run = newEventId().slice(-6);
const [jobs, group] = [`jobs.${run}`, `workers-${run}`];

let mended = false;
await using consumer = await bus.consume(jobs, { group }, async (event, ctx) => {
  const job = event.payload as string;
  if (job === "flaky" && ctx.attempt === 1) {
    throw ctx.retry({ after: "50ms", reason: "the network is down" });
  }
  if (job === "hopeless" && !mended) {
    throw ctx.park("nobody knows this job");
  }
  console.log(`done: ${job}, at attempt ${ctx.attempt}`);
});

for (const job of ["good", "flaky", "hopeless"]) {
  await bus.publish(jobs, job);
}
await consumer.caughtUp();

const letters = await bus.deadLetters.list({ group });
for (const letter of letters) {
  console.log(`parked: ${letter.original?.payload}, because ${letter.err}`);
}

mended = true;
for (const letter of letters) {
  await bus.deadLetters.replay(letter.id);
}
await consumer.caughtUp();
