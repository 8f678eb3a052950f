import { Backoff } from "./backoff.js";
import { PromError } from "./error.js";
import { Session, type SessionOptions } from "./session.js";

export type ConnectionState = "connecting" | "connected" | "waiting" | "closed";

/** How a connection is, and what led to it. */
export interface StateChange {
  readonly state: ConnectionState;
  /** Why the connection was lost, or cannot be had. */
  readonly error?: PromError;
  /** In `waiting`: when it will be tried again. */
  readonly retryInMs?: number;
}

/** Someone who needs a connection, and is told when there is one and when it is gone. */
export interface Attendant {
  connected(session: Session): void;
  /** `final`: there will be no other one. */
  lost(error: PromError, final: boolean): void;
  /** The server stops: settles when this attendant is done with the connection. */
  drained?(): Promise<void>;
}

/** A connection that lived so long makes the next failure a first one. */
const STEADY_MS = 5_000;

/** After these, trying again with the same credential and address cannot help. */
const FINAL: ReadonlySet<string> = new Set([
  "unauthorized",
  "token_expired",
  "forbidden",
  "origin_refused",
  "host_refused",
  "token_in_query",
]);

/** Keeps one session alive: connects, and connects again, until it is closed. */
export class Connection {
  readonly #options: SessionOptions;
  readonly #changed: (change: StateChange) => void;
  readonly #backoff = new Backoff();
  readonly #attendants = new Set<Attendant>();
  #session: Session | undefined;
  #state: StateChange = { state: "connecting" };
  #wake: (() => void) | undefined;
  #closed: PromError | undefined;

  constructor(options: SessionOptions, changed: (change: StateChange) => void) {
    this.#options = options;
    this.#changed = changed;
  }

  get state(): StateChange {
    return this.#state;
  }

  get session(): Session | undefined {
    return this.#session?.isOpen ? this.#session : undefined;
  }

  /** Connects, and stays so, in the background. */
  start(): void {
    globalThis.addEventListener?.("online", this.#wakeUp);
    void this.#run();
  }

  attend(attendant: Attendant): void {
    if (this.#closed !== undefined) {
      attendant.lost(this.#closed, true);
      return;
    }
    this.#attendants.add(attendant);
    const session = this.session;
    if (session !== undefined) {
      attendant.connected(session);
    }
  }

  dismiss(attendant: Attendant): void {
    this.#attendants.delete(attendant);
  }

  close(error: PromError = new PromError("closed", "the bus was closed")): void {
    if (this.#closed !== undefined) {
      return;
    }
    this.#closed = error;
    globalThis.removeEventListener?.("online", this.#wakeUp);
    const attendants = [...this.#attendants];
    this.#attendants.clear();
    this.#session?.close();
    this.#session = undefined;
    this.#wakeUp();
    this.#enter({ state: "closed", error });
    for (const attendant of attendants) {
      attendant.lost(error, true);
    }
  }

  /** Leaves the connection, as if the network had failed, and connects again. */
  reconnect(): void {
    this.#session?.abandon(new PromError("disconnected", "to be connected again"));
  }

  readonly #wakeUp = (): void => this.#wake?.();

  async #run(): Promise<void> {
    while (this.#closed === undefined) {
      this.#enter({ state: "connecting" });
      const startedAt = performance.now();
      const { error, opened } = await this.#once();
      if (this.#closed !== undefined) {
        return;
      }
      // A new credential may be had from who gives them; what was written down stays refused.
      if (!opened && FINAL.has(error.code) && typeof this.#options.token !== "function") {
        this.close(error);
        return;
      }
      if (performance.now() - startedAt > STEADY_MS) {
        this.#backoff.reset();
      }
      const retryInMs = Math.max(error.retryMs ?? 0, this.#backoff.nextMs());
      this.#enter({ state: "waiting", error, retryInMs });
      await this.#wait(retryInMs);
    }
  }

  /** One session, to its end. */
  async #once(): Promise<{ error: PromError; opened: boolean }> {
    let session: Session;
    try {
      session = await Session.open(this.#options);
    } catch (cause) {
      const error = new PromError("unreachable", "no connection", { cause });
      return { error: cause instanceof PromError ? cause : error, opened: false };
    }
    if (this.#closed !== undefined) {
      session.close();
      return { error: this.#closed, opened: true };
    }
    this.#session = session;
    return new Promise((resolve) => {
      session.listen({
        draining: (deadlineMs) => void this.#drain(session, deadlineMs),
        refused: (error) => {
          // The credential ended: a new connection asks for everything again.
          if (error.code === "token_expired") {
            session.abandon(error);
          }
        },
        closed: (error) => {
          if (this.#session === session) {
            this.#session = undefined;
          }
          for (const attendant of [...this.#attendants]) {
            attendant.lost(error, false);
          }
          resolve({ error, opened: true });
        },
      });
      if (session.isOpen) {
        this.#enter({ state: "connected" });
        for (const attendant of [...this.#attendants]) {
          attendant.connected(session);
        }
      }
    });
  }

  /** Lets everyone finish what they have, then leaves, before the server would close. */
  async #drain(session: Session, deadlineMs: number): Promise<void> {
    const done = [...this.#attendants].map((attendant) => attendant.drained?.());
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, deadlineMs * 0.8);
    });
    await Promise.race([Promise.allSettled(done), late]);
    clearTimeout(timer);
    session.abandon(new PromError("going_away", "the server stops"));
  }

  #enter(change: StateChange): void {
    this.#state = change;
    this.#changed(change);
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#wakeUp(), ms);
      this.#wake = () => {
        clearTimeout(timer);
        this.#wake = undefined;
        resolve();
      };
    });
  }
}
