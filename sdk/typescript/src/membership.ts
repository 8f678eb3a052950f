import { Acknowledger } from "./acknowledger.js";
import type { Attendant, Connection } from "./connection.js";
import { PromError } from "./error.js";
import type { EventsFrame, SubscribeFrameOpts } from "./frame.js";
import { Lease, LeaseTable } from "./lease.js";
import { Park, Retry, reasonOf, Skip } from "./outcome.js";
import type { Session } from "./session.js";
import { UnreadablePayload } from "./topic.js";

/** What a member of a group wants. */
export interface MembershipWish {
  topics: string[];
  group: string;
  opts: Omit<SubscribeFrameOpts, "batch" | "credit">;
  /** Events that may be here at once without having been answered. */
  prefetch: number;
  leaseMs: number;
  processingMs: number;
}

/** Who works on what comes. */
export interface Worker {
  delivered(lease: Lease): void;
  /** The lease is lost, whether work on it has begun or not. */
  lost(lease: Lease): void;
  /** Work that has begun is done. */
  idle(): Promise<void>;
  /** Nothing more will come. */
  ended(error: PromError): void;
}

/** How an event was answered: done, or an outcome, or whatever went wrong. */
export type Answer = { done: true } | { done: false; thrown: unknown };

/** A place in a group, taken again after each reconnect. Credits bound what is here. */
export class Membership implements Attendant {
  readonly group: string;
  /** Settles when the group has been joined for the first time. */
  readonly joined: Promise<void>;
  readonly #connection: Connection;
  readonly #wish: MembershipWish;
  readonly #worker: Worker;
  readonly #leases: LeaseTable;
  readonly #acks = new Acknowledger();
  #settleJoined: (error?: PromError) => void = () => {};
  #session: Session | undefined;
  #sub: number | undefined;
  #owed = 0;
  #paused = false;
  #ended = false;

  constructor(connection: Connection, wish: MembershipWish, worker: Worker) {
    this.group = wish.group;
    this.#connection = connection;
    this.#wish = wish;
    this.#worker = worker;
    this.#leases = new LeaseTable(wish, (lease) => {
      worker.lost(lease);
      this.#repay(lease);
    });
    this.joined = new Promise((resolve, reject) => {
      this.#settleJoined = (error) => (error === undefined ? resolve() : reject(error));
    });
    // Whoever waits for it hears of it; the worker does in any case.
    this.joined.catch(() => {});
  }

  start(): void {
    this.#connection.attend(this);
  }

  get isPaused(): boolean {
    return this.#paused;
  }

  connected(session: Session): void {
    const { topics, group, opts, prefetch } = this.#wish;
    this.#session = session;
    this.#owed = 0;
    // Who is paused wants nothing, not even before it can say so.
    const frame = { ...opts, credit: this.#paused ? 0 : prefetch, batch: true as const };
    const paused = this.#paused;
    session
      .request({ op: "SUBSCRIBE", topics, group, opts: frame }, (answer) => {
        this.#sub = answer.sub;
        if (answer.sub !== undefined) {
          session.feed(answer.sub, {
            events: (events) => this.#take(session, events),
            gap() {},
            ended: (error) => {
              this.#sub = undefined;
              this.#leases.loseAll("the subscription has ended");
              this.#refused(session, error);
            },
          });
        }
      })
      .then(
        () => {
          if (paused && this.#sub !== undefined) {
            const sub = this.#sub;
            session.post({ op: this.#paused ? "PAUSE" : "RESUME", sub });
            session.post({ op: "CREDIT", sub, credit: prefetch });
          }
          this.#settleJoined();
        },
        (error: PromError) => this.#refused(session, error),
      );
  }

  lost(error: PromError, final: boolean): void {
    this.#session = undefined;
    this.#sub = undefined;
    this.#leases.loseAll("the connection was lost");
    if (final) {
      this.#end(error);
    }
  }

  async drained(): Promise<void> {
    await this.#worker.idle();
  }

  /** The time that work on an event may take begins anew. */
  extend(lease: Lease): void {
    this.#leases.extend(lease);
  }

  /** Says how it went. Resolves when that is durable. */
  async answer(lease: Lease, answer: Answer): Promise<void> {
    lease.take();
    this.#leases.remove(lease);
    this.#repay(lease);
    if (answer.done || answer.thrown instanceof Skip) {
      await this.#acks.ack(lease);
      return;
    }
    const { thrown } = answer;
    const afterMs = thrown instanceof Retry ? thrown.afterMs : undefined;
    await lease.session.request({
      op: "NACK",
      token: lease.token,
      reason: reasonOf(thrown),
      ...(afterMs === undefined ? {} : { delay_ms: afterMs }),
      ...(isHopeless(thrown) ? { park: true } : {}),
    });
  }

  /** Nothing new comes until `resume`; what is here stays. */
  async pause(): Promise<void> {
    this.#paused = true;
    await this.#flow("PAUSE");
  }

  async resume(): Promise<void> {
    this.#paused = false;
    await this.#flow("RESUME");
  }

  /** Leaves the group; what was not answered goes to others at once. */
  async leave(): Promise<void> {
    if (this.#ended) {
      return;
    }
    this.#ended = true;
    this.#connection.dismiss(this);
    this.#acks.flush();
    const session = this.#session;
    if (session?.isOpen && this.#sub !== undefined) {
      session.unfeed(this.#sub);
      await session.request({ op: "UNSUBSCRIBE", sub: this.#sub }).catch((error: PromError) => {
        // A connection that is gone has left the group as well.
        if (session.isOpen) {
          throw error;
        }
      });
    }
    this.#leases.loseAll("the group was left");
    this.#settleJoined(new PromError("closed", "the group was left"));
  }

  async #flow(op: "PAUSE" | "RESUME"): Promise<void> {
    const session = this.#session;
    if (session?.isOpen && this.#sub !== undefined) {
      await session.request({ op, sub: this.#sub });
    }
  }

  #take(session: Session, frame: EventsFrame): void {
    for (const { event, ctx } of frame.events) {
      const lease = new Lease(session, event, ctx, this.#wish);
      this.#leases.add(lease);
      this.#worker.delivered(lease);
    }
  }

  /** One event less is here: as many more may come, asked for in few frames. */
  #repay(lease: Lease): void {
    if (lease.session !== this.#session || this.#sub === undefined) {
      return;
    }
    this.#owed += 1;
    if (this.#owed * 2 >= this.#wish.prefetch) {
      lease.session.post({ op: "CREDIT", sub: this.#sub, credit: this.#owed });
      this.#owed = 0;
    }
  }

  #refused(session: Session, error: PromError): void {
    if (!session.isOpen || this.#ended) {
      return;
    }
    if (!error.retryable) {
      this.#end(error);
      return;
    }
    const again = () => {
      if (this.#session === session && session.isOpen && !this.#ended) {
        this.connected(session);
      }
    };
    setTimeout(again, error.retryMs ?? 1_000);
  }

  #end(error: PromError): void {
    if (!this.#ended) {
      this.#ended = true;
      this.#connection.dismiss(this);
      this.#settleJoined(error);
      this.#worker.ended(error);
    }
  }
}

/** A payload that is not what the reader expects will not be so the next time, either. */
function isHopeless(thrown: unknown): boolean {
  return thrown instanceof Park || thrown instanceof UnreadablePayload;
}
