import { Backoff } from "./backoff.js";
import type { Attendant, Connection } from "./connection.js";
import { PromError } from "./error.js";
import type { Place, PublishFrameOpts } from "./frame.js";
import { FRAME_BYTES_MAX, PENDING_BYTES_MAX, PENDING_EVENTS_MAX } from "./limits.js";
import type { Session } from "./session.js";

/** An event on its way to a server. */
export interface Outgoing {
  topic: string;
  payload: unknown;
  opts: PublishFrameOpts;
}

export interface PublishWish {
  events: readonly Outgoing[];
  timeoutMs: number;
  signal: AbortSignal | undefined;
}

interface Pending {
  /** The events as JSON, written when they were published: what the caller changes later stays out. */
  readonly body: string;
  readonly count: number;
  readonly id: string;
  readonly backoff: Backoff;
  retry: ReturnType<typeof setTimeout> | undefined;
  readonly settle: (outcome: PromError | Place[]) => void;
}

/**
 * Everything that was published and is not answered yet, in order. Events carry ids from the start,
 * so that sending them again, after a lost connection or a refusal, adds nothing twice.
 */
export class Publisher implements Attendant {
  readonly #connection: Connection;
  readonly #pending = new Set<Pending>();
  readonly #asked = new Set<Promise<void>>();
  #events = 0;
  #bytes = 0;
  #ended: PromError | undefined;

  constructor(connection: Connection) {
    this.#connection = connection;
    connection.attend(this);
  }

  /** Resolves when the events are durable, all of them. */
  publish(wish: PublishWish): Promise<Place[]> {
    if (this.#ended !== undefined) {
      return Promise.reject(this.#ended);
    }
    const body = JSON.stringify(wish.events);
    const id = wish.events[0]?.opts.id ?? "";
    const bytes = this.#checked(body, wish.events.length, id);
    wish.signal?.throwIfAborted();
    return new Promise((resolve, reject) => {
      const count = wish.events.length;
      const late = () => {
        const text = "no answer in time; it may be stored: publish it again with the same id";
        pending.settle(new PromError("indeterminate", text, { id }));
      };
      const timer = setTimeout(late, wish.timeoutMs);
      const aborted = () => settle(() => reject(wish.signal?.reason));
      const settle = (act: () => void) => {
        if (this.#pending.delete(pending)) {
          clearTimeout(timer);
          clearTimeout(pending.retry);
          wish.signal?.removeEventListener("abort", aborted);
          this.#events -= count;
          this.#bytes -= bytes;
          act();
        }
      };
      const pending: Pending = {
        body,
        count,
        id,
        backoff: new Backoff(),
        retry: undefined,
        settle: (outcome) =>
          settle(() => (outcome instanceof PromError ? reject(outcome) : resolve(outcome))),
      };
      this.#pending.add(pending);
      this.#events += count;
      this.#bytes += bytes;
      wish.signal?.addEventListener("abort", aborted);
      const session = this.#connection.session;
      if (session !== undefined) {
        this.#send(session, pending);
      }
    });
  }

  connected(session: Session): void {
    for (const pending of this.#pending) {
      clearTimeout(pending.retry);
      this.#send(session, pending);
    }
  }

  lost(error: PromError, final: boolean): void {
    if (final) {
      this.#ended = error;
      for (const pending of [...this.#pending]) {
        pending.settle(error);
      }
    }
  }

  /** Every answer under way has come; what was refused waits for the next connection. */
  async drained(): Promise<void> {
    await Promise.all(this.#asked);
  }

  #checked(body: string, count: number, id: string): number {
    const bytes = byteLength(body);
    const max = this.#connection.session?.hello.limits.frame_bytes ?? FRAME_BYTES_MAX;
    // A frame beyond the limit would end the connection, again and again.
    if (bytes + 64 > max) {
      throw new PromError("too_large", `${bytes} bytes; a publish has ${max} at most`, { id });
    }
    if (this.#events + count > PENDING_EVENTS_MAX || this.#bytes + bytes > PENDING_BYTES_MAX) {
      const text = `${this.#events} events wait for their answers; await publishes, or slow down`;
      throw new PromError("limit", text, { id });
    }
    return bytes;
  }

  #send(session: Session, pending: Pending): void {
    const write = (corr: number) => `{"op":"PUBLISH","corr":${corr},"events":${pending.body}}`;
    const asked = session.requestText(write).then(
      (answer) => pending.settle("places" in answer ? (answer.places ?? []) : []),
      (error: PromError) => {
        // What a lost connection took with it is sent again by the next one.
        if (!session.isOpen || !this.#pending.has(pending)) {
          return;
        }
        if (!error.retryable) {
          pending.settle(new PromError(error.code, bare(error), { id: pending.id, cause: error }));
          return;
        }
        const waitMs = Math.max(error.retryMs ?? 0, pending.backoff.nextMs());
        pending.retry = setTimeout(() => this.#again(pending), waitMs);
      },
    );
    this.#asked.add(asked);
    void asked.then(() => this.#asked.delete(asked));
  }

  #again(pending: Pending): void {
    const session = this.#connection.session;
    if (session !== undefined && this.#pending.has(pending)) {
      this.#send(session, pending);
    }
  }
}

function bare(error: PromError): string {
  return error.message.slice(error.code.length + 2);
}

const encoder = new TextEncoder();

function byteLength(text: string): number {
  // Text of one byte per character is the rule, and three is the most there is.
  return text.length * 3 < FRAME_BYTES_MAX / 2 ? text.length * 3 : encoder.encode(text).length;
}
