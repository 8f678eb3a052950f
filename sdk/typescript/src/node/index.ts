/** Client of Promethean, for Node: finds its server in the environment, and follows causes. */
import { AsyncLocalStorage } from "node:async_hooks";
import { readFileSync } from "node:fs";
import { type BusOptions, type ConnectOptions, Bus as PlainBus } from "../bus.js";
import type { CauseScope } from "../cause.js";
import type { EventRecord } from "../frame.js";
import { openPlatformSocket } from "../socket.js";
import { openNodeSocket } from "./websocket.js";

export * from "../index.js";

const handled = new AsyncLocalStorage<EventRecord>();

const followedCauses: CauseScope = {
  run: (event, body) => handled.run(event, body),
  current: () => handled.getStore(),
};

/** What is set to nothing is not set. */
const named = (name: string): string | undefined => process.env[name] || undefined;

/**
 * What is not said is taken from the environment: `PROM_URL`, and the token in the file that
 * `PROM_TOKEN_FILE` names, which is read again whenever one is needed, or `PROM_TOKEN` itself.
 */
function settled(options: BusOptions): BusOptions {
  const file = named("PROM_TOKEN_FILE");
  const read = file === undefined ? undefined : () => readFileSync(file, "utf8").trim();
  const token = options.token ?? read ?? named("PROM_TOKEN");
  const url = options.url ?? named("PROM_URL");
  return {
    openSocket: "WebSocket" in globalThis ? openPlatformSocket : openNodeSocket,
    causes: followedCauses,
    ...options,
    ...(url === undefined ? {} : { url }),
    ...(token === undefined ? {} : { token }),
  };
}

/** A connection to a server, kept alive until it is closed. */
export class Bus extends PlainBus {
  constructor(options: BusOptions = {}) {
    super(settled(options));
  }
}

/** Connects to a server. Fails if there is none in time; later losses are mended by themselves. */
export async function connect(options: ConnectOptions = {}): Promise<Bus> {
  const bus = new Bus(options);
  try {
    await bus.connected(options);
  } catch (error) {
    await bus.close();
    throw error;
  }
  return bus;
}
