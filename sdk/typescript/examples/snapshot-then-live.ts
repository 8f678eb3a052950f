/**
 * The state of every process, and then what happens to them: `process.state` has `snapshot = true` in
 * the manifest. Ends after so many events.
 */
import { connect } from "../src/node/index.js";

interface ProcessState {
  status: string;
}

await using bus = await connect({ url: process.env.PROM_URL ?? "ws://127.0.0.1:7766" });
const processes = new Map<string, string>();
let left = Number(process.argv[2] ?? 1);

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
