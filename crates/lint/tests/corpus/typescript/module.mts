import { HEARTBEAT } from "./names.js";
bus.publish(HEARTBEAT satisfies string, {}); // @publish heartbeat.received
