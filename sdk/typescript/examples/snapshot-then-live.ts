/**
 * The state of every process, and then what happens to them, until so many events have come. The
 * manifest has `snapshot = true` for `process.state`.
 *
 *     npm run example snapshot-then-live [COUNT]
 */
import { connect } from "promethean";

interface ProcessState {
  status: string;
}

await using bus = await connect();
const processes = new Map<string, string>();
let left = Number(process.argv[2] ?? 10);

for await (const followed of bus.follow("process.state")) {
  switch (followed.kind) {
    case "state": {
      const state = followed.event.payload as ProcessState;
      processes.set(followed.event.key ?? "", state.status);
      break;
    }
    case "live":
      console.log(`${processes.size} processes`);
      break;
    case "event": {
      const { key = "", payload } = followed.event;
      const state = payload as ProcessState | null;
      console.log(`${key} ${state === null ? "gone" : state.status}`);
      left -= 1;
      break;
    }
  }
  if (left === 0) {
    break;
  }
}
