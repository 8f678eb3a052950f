import { PromError } from "./error.js";
import type { DeliveryFrame, EventRecord } from "./frame.js";
import type { Session } from "./session.js";

/**
 * One delivery of one event: ours until it is answered, or its deadline passes, or the connection
 * ends. Then the event goes to whoever is next, and `signal` aborts.
 */
export class Lease {
  readonly event: EventRecord;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly token: string;
  readonly session: Session;
  /** On the clock of `performance.now()`. */
  deadlineMs: number;
  /** It is renewed until then. */
  renewUntilMs: number;
  renewing = false;
  #state: "held" | "answered" | "lost" = "held";
  #abort: AbortController | undefined;
  #reason: PromError | undefined;

  constructor(
    session: Session,
    event: EventRecord,
    ctx: DeliveryFrame,
    bounds: { leaseMs: number; processingMs: number },
  ) {
    const now = performance.now();
    this.session = session;
    this.event = event;
    this.attempt = ctx.attempt;
    this.maxAttempts = ctx.max_attempts;
    this.token = ctx.token ?? "";
    this.deadlineMs = now + (ctx.ack_deadline_ms ?? bounds.leaseMs);
    this.renewUntilMs = now + bounds.processingMs;
  }

  get isHeld(): boolean {
    return this.#state === "held";
  }

  get isLost(): boolean {
    return this.#state === "lost";
  }

  /** Aborts when the lease is lost. Made when it is asked for: most handlers do not. */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#reason !== undefined) {
        this.#abort.abort(this.#reason);
      }
    }
    return this.#abort.signal;
  }

  /** Answers come once; a second one, or one that is too late, is an error. */
  take(): void {
    if (this.#state === "answered") {
      throw new PromError("conflict", "the event was answered already", { id: this.event.id });
    }
    if (this.#state === "lost") {
      throw this.#reason ?? new PromError("stale_token", "the lease is lost");
    }
    this.#state = "answered";
  }

  lose(why: string): void {
    if (this.#state === "held") {
      this.#state = "lost";
      const text = `${why}; the event goes to whoever is next`;
      this.#reason = new PromError("stale_token", text, { id: this.event.id });
      this.#abort?.abort(this.#reason);
    }
  }
}

/** What a lease table needs to know. */
export interface LeaseBounds {
  /** How long a lease lasts when it is renewed. */
  readonly leaseMs: number;
  /** How long after it came, or after work on it began, it is renewed. */
  readonly processingMs: number;
}

/** All leases of a subscription: renews them in time, and lets those go that are lost. */
export class LeaseTable {
  readonly #bounds: LeaseBounds;
  readonly #lost: (lease: Lease) => void;
  readonly #held = new Set<Lease>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #dueMs = Number.POSITIVE_INFINITY;

  constructor(bounds: LeaseBounds, lost: (lease: Lease) => void) {
    this.#bounds = bounds;
    this.#lost = lost;
  }

  get size(): number {
    return this.#held.size;
  }

  add(lease: Lease): void {
    this.#held.add(lease);
    this.#arm(this.#due(lease));
  }

  remove(lease: Lease): void {
    this.#held.delete(lease);
    if (this.#held.size === 0) {
      this.#disarm();
    }
  }

  /** The time that work may take begins anew. */
  extend(lease: Lease): void {
    lease.renewUntilMs = performance.now() + this.#bounds.processingMs;
    this.#arm(this.#due(lease));
  }

  /** The connection is gone, and with it every lease. */
  loseAll(why: string): void {
    const held = [...this.#held];
    this.#held.clear();
    this.#disarm();
    for (const lease of held) {
      lease.lose(why);
      this.#lost(lease);
    }
  }

  /** When something has to be done about a lease: a third of it has gone by, or it ends. */
  #due(lease: Lease): number {
    const renewAt = lease.deadlineMs - (this.#bounds.leaseMs * 2) / 3;
    return lease.renewing || renewAt >= lease.renewUntilMs ? lease.deadlineMs : renewAt;
  }

  #arm(dueMs: number): void {
    if (dueMs >= this.#dueMs) {
      return;
    }
    clearTimeout(this.#timer);
    this.#dueMs = dueMs;
    this.#timer = setTimeout(() => this.#sweep(), Math.max(0, dueMs - performance.now()) + 1);
  }

  #disarm(): void {
    clearTimeout(this.#timer);
    this.#dueMs = Number.POSITIVE_INFINITY;
  }

  #sweep(): void {
    const now = performance.now();
    this.#disarm();
    for (const lease of [...this.#held]) {
      if (lease.deadlineMs <= now) {
        this.#drop(lease, "its deadline has passed");
      } else if (this.#due(lease) <= now && !lease.renewing) {
        this.#renew(lease, now);
      }
    }
    let next = Number.POSITIVE_INFINITY;
    for (const lease of this.#held) {
      next = Math.min(next, this.#due(lease));
    }
    this.#arm(next);
  }

  #renew(lease: Lease, now: number): void {
    const { leaseMs } = this.#bounds;
    lease.renewing = true;
    lease.session.request({ op: "MODACK", token: lease.token, extend_ms: leaseMs }).then(
      () => {
        lease.renewing = false;
        lease.deadlineMs = now + leaseMs;
        if (this.#held.has(lease)) {
          this.#arm(this.#due(lease));
        }
      },
      (error: PromError) => {
        lease.renewing = false;
        // A connection that is gone takes all leases with it, elsewhere.
        if (lease.session.isOpen && this.#held.has(lease)) {
          this.#drop(lease, `it could not be renewed (${error.code})`);
        }
      },
    );
  }

  #drop(lease: Lease, why: string): void {
    this.#held.delete(lease);
    lease.lose(why);
    this.#lost(lease);
  }
}
