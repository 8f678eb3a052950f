/**
 * The real server for tests: on a free port, in memory unless told otherwise, with faults on demand
 * and `settled()` instead of sleeping.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type Duration, millis } from "../duration.js";
import { RemoteEventBus } from "../eventbus.js";
import { CAUGHT_UP_MS } from "../limits.js";
import { Bus, type BusOptions, type GroupLag, PromError } from "../node/index.js";
import { openNodeSocket } from "../node/websocket.js";
import { Session } from "../session.js";
import { openPlatformSocket } from "../socket.js";
import { pollUntil } from "../waiting.js";
import { Faults } from "./faults.js";
import { Relay } from "./relay.js";
import { findBinary, ServerProcess } from "./server.js";

export interface HarnessOptions {
  /** The binary. Default: `PROM_BIN`, a build next to the sources, or `prom` on `PATH`. */
  bin?: string;
  /** `"disk"`: in a temporary directory, so that `restart` keeps it. Default: `"memory"`. */
  store?: "memory" | "disk";
  /** A `prom.toml`, whose topics and groups are there when the harness is. */
  manifest?: string;
  /**
   * `"virtual"`: the server's clock goes on by leaps, by `advance`, and by itself over delays that
   * `settled` waits for. In memory only. Default: `"real"`.
   */
  clock?: "real" | "virtual";
  /** Web origins whose pages may connect. */
  origins?: readonly string[];
  /** What else `prom dev` is to be called with. */
  arguments?: readonly string[];
}

/** How far a virtual clock goes at once while something waits for a delay. */
const STEP_MS = 100;

/** Starts a server. `await using` stops it. */
export async function harness(options: HarnessOptions = {}): Promise<Harness> {
  return Harness.start(options);
}

export class Harness implements AsyncDisposable {
  /** A connection to the server, with the faults on it. */
  readonly bus: Bus;
  readonly #options: HarnessOptions;
  readonly #relay: Relay;
  readonly #faults = new Faults();
  readonly #directory: string | undefined;
  readonly #buses = new Set<Bus>();
  #server: ServerProcess;
  #advancing: Promise<void> = Promise.resolve();

  private constructor(parts: {
    options: HarnessOptions;
    relay: Relay;
    server: ServerProcess;
    directory: string | undefined;
  }) {
    this.#options = parts.options;
    this.#relay = parts.relay;
    this.#server = parts.server;
    this.#directory = parts.directory;
    this.bus = this.#newBus({});
  }

  static async start(options: HarnessOptions): Promise<Harness> {
    const onDisk = options.store === "disk";
    if (onDisk && options.clock === "virtual") {
      throw new Error('a virtual clock is for store: "memory"');
    }
    const directory = onDisk ? await mkdtemp(join(tmpdir(), "promethean-")) : undefined;
    const server = await ServerProcess.start(commandOf(options, directory));
    const relay = await Relay.start();
    relay.aim(server.port);
    const started = new Harness({ options, relay, server, directory });
    await started.bus.connected();
    return started;
  }

  /** Where the server is, also after a restart. */
  get url(): string {
    return `ws://127.0.0.1:${this.#relay.port}`;
  }

  /** Another connection, with the faults on it. */
  async connect(options: BusOptions = {}): Promise<Bus> {
    const bus = this.#newBus(options);
    await bus.connected();
    return bus;
  }

  /** The small bus of `promethean/eventbus`, over the same server. */
  eventBus(): RemoteEventBus {
    return new RemoteEventBus(this.bus);
  }

  /**
   * Lets time go by, with `clock: "virtual"`: leases, delays of retries and retention that end
   * meanwhile end. Resolves when the server's clock is there.
   */
  async advance(time: Duration): Promise<void> {
    if (this.#options.clock !== "virtual") {
      throw new Error('say clock: "virtual" to the harness: real time cannot be told');
    }
    // One after the other: answers are told apart by nothing else.
    this.#advancing = this.#advancing.then(() => this.#server.advance(Math.round(millis(time))));
    await this.#advancing;
  }

  /**
   * Resolves when every group has handled all that is stored, and nothing is on lease. A virtual
   * clock goes on over delays of retries, but not while somebody works.
   */
  async settled(options: { timeout?: Duration } = {}): Promise<void> {
    let before = "";
    await pollUntil(millis(options.timeout ?? CAUGHT_UP_MS), async () => {
      const groups = await this.#lags();
      if (groups === undefined) {
        return "the server cannot be reached";
      }
      const behind = groups.filter((group) => group.events > 0 || outOf(group) > 0);
      if (behind.length > 0) {
        before = "";
        if (this.#options.clock === "virtual" && groups.every((group) => outOf(group) === 0)) {
          await this.advance(STEP_MS);
        }
        return behind.map(describe).join("; ");
      }
      // Groups are looked at one after the other: only if nothing was stored between two looks
      // were they all done at once.
      const ends = JSON.stringify(groups.map((group) => [group.group, endsOf(group)]));
      const same = ends === before;
      before = ends;
      return same ? undefined : "events still come";
    });
  }

  /** The next deliveries to a group fail before a handler sees them. */
  fail(group: string, options: { times?: number; reason?: string } = {}): void {
    this.#faults.fail(group, options.times ?? 1, options.reason ?? "failed on purpose");
  }

  /** The next acks of a group get lost: what was handled is delivered again. */
  duplicate(group: string, options: { times?: number } = {}): void {
    this.#faults.duplicate(group, options.times ?? 1);
  }

  /** Cuts every connection to the server; clients come back by themselves. How many there were. */
  dropConnections(): number {
    return this.#relay.drop();
  }

  /** Cuts every connection, and refuses new ones until `online`. */
  offline(): void {
    this.#relay.offline();
  }

  online(): void {
    this.#relay.online();
  }

  /** Another member joins a group and leaves again, so that its partitions are dealt out anew. */
  async rebalance(group: string): Promise<void> {
    const membership = this.#faults.membership(group);
    if (membership === undefined) {
      throw new Error(`nobody has joined group ${group} through this harness`);
    }
    const session = await Session.open({
      url: `${this.url}/ws`,
      openSocket: platformSocket(),
      token: undefined,
    });
    const { topics, opts } = membership;
    const frame = { op: "SUBSCRIBE", topics, group, opts: { ...opts, credit: 0 } } as const;
    const { sub } = await session.request(frame);
    await session.request({ op: "UNSUBSCRIBE", sub: sub ?? 0 });
    session.close();
  }

  /** Stops the server, or kills it, and starts it again; with `store: "disk"` it has it all. */
  async restart(options: { kill?: boolean } = {}): Promise<void> {
    await (options.kill ? this.#server.kill() : this.#server.stop());
    this.#server = await ServerProcess.start(commandOf(this.#options, this.#directory));
    this.#relay.aim(this.#server.port);
  }

  /** Ends connections and server. The exit code of the server. */
  async stop(): Promise<number | null> {
    await Promise.all([...this.#buses].map((bus) => bus.close({ drain: 1_000 })));
    await this.#relay.stop();
    const code = await this.#server.stop();
    if (this.#directory !== undefined) {
      await rm(this.#directory, { recursive: true, force: true });
    }
    return code;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** A connection that was cut while it asked is no answer. */
  async #lags(): Promise<GroupLag[] | undefined> {
    try {
      return await this.bus.groups.lag();
    } catch (error) {
      if (error instanceof PromError && error.code === "unreachable") {
        return undefined;
      }
      throw error;
    }
  }

  #newBus(options: BusOptions): Bus {
    const openSocket = this.#faults.wrap(options.openSocket ?? platformSocket());
    const bus = new Bus({ url: this.url, ...options, openSocket });
    this.#buses.add(bus);
    return bus;
  }
}

function platformSocket() {
  return "WebSocket" in globalThis ? openPlatformSocket : openNodeSocket;
}

function commandOf(options: HarnessOptions, directory: string | undefined) {
  const words = ["dev", "--port", "0"];
  if (directory !== undefined) {
    words.push("--data", directory);
  }
  if (options.clock === "virtual") {
    words.push("--test-clock");
  }
  if (options.manifest !== undefined) {
    words.push("--config", resolve(options.manifest));
  }
  for (const origin of options.origins ?? []) {
    words.push("--origin", origin);
  }
  return { bin: findBinary(options.bin), arguments: [...words, ...(options.arguments ?? [])] };
}

function outOf(group: GroupLag): number {
  return group.partitions.reduce((sum, partition) => sum + partition.out, 0);
}

function endsOf(group: GroupLag): unknown {
  return group.partitions.map(({ topic, partition, end }) => [topic, partition, end]);
}

function describe(group: GroupLag): string {
  const members = group.members === 0 ? "no members" : `${group.members} members`;
  return `group ${group.group} is ${group.events} events behind (${members}, ${outOf(group)} out)`;
}
