/**
 * Faults between a client and its server, frame by frame: deliveries that fail before a handler sees
 * them, and acks that get lost after a handler is done. What the client and the server do about them
 * is what they always do.
 */
import type { ClientFrame, ServerFrame } from "../frame.js";
import type { OpenSocket, Socket } from "../socket.js";

interface Knob {
  left: number;
  reason: string;
}

type Asked = ClientFrame & { corr?: number };
type Subscribe = Extract<ClientFrame, { op: "SUBSCRIBE" | "RESUME"; topics: string[] }>;

/** What is to go wrong, for all sockets that were opened through it. */
export class Faults {
  readonly #failing = new Map<string, Knob>();
  readonly #duplicated = new Map<string, Knob>();
  readonly #members = new Map<string, Subscribe>();

  /** The next deliveries to a group fail, as if the handler had thrown. */
  fail(group: string, times: number, reason: string): void {
    this.#failing.set(group, { left: times, reason });
  }

  /** The next acks of a group get lost: what was handled comes again. */
  duplicate(group: string, times: number): void {
    this.#duplicated.set(group, { left: times, reason: "the ack was lost" });
  }

  /** How a group was last joined. */
  membership(group: string): Subscribe | undefined {
    return this.#members.get(group);
  }

  wrap(open: OpenSocket): OpenSocket {
    return (url, events) => {
      const wire = new Wire(this, (text) => socket.send(text));
      const socket: Socket = open(url, {
        ...events,
        opened: () => events.opened(),
        closed: (code, reason, error) => events.closed(code, reason, error),
        received: (text) => {
          const passed = wire.incoming(JSON.parse(text) as ServerFrame);
          if (passed !== undefined) {
            events.received(JSON.stringify(passed));
          }
        },
      });
      return {
        send: (text) => {
          for (const frame of wire.outgoing(JSON.parse(text) as Asked)) {
            socket.send(JSON.stringify(frame));
          }
        },
        close: (code, reason) => socket.close(code, reason),
      };
    };
  }

  failure(group: string): string | undefined {
    return taken(this.#failing.get(group));
  }

  loss(group: string): string | undefined {
    return taken(this.#duplicated.get(group));
  }

  joins(frame: Subscribe): void {
    this.#members.set(frame.group ?? "", frame);
  }
}

function taken(knob: Knob | undefined): string | undefined {
  if (knob === undefined || knob.left === 0) {
    return undefined;
  }
  knob.left -= 1;
  return knob.reason;
}

/** One socket: knows which token is of which group. */
class Wire {
  readonly #faults: Faults;
  readonly #send: (text: string) => void;
  readonly #groups = new Map<string, string>();
  /** How many acks of a request were taken out of it. */
  readonly #taken = new Map<number, number>();

  constructor(faults: Faults, send: (text: string) => void) {
    this.#faults = faults;
    this.#send = send;
  }

  incoming(frame: ServerFrame): ServerFrame | undefined {
    if (frame.op === "OK" && frame.corr !== undefined && this.#taken.has(frame.corr)) {
      const accepted = (frame.accepted ?? 0) + (this.#taken.get(frame.corr) ?? 0);
      this.#taken.delete(frame.corr);
      return { ...frame, accepted };
    }
    if (frame.op !== "EVENTS" || frame.group === undefined) {
      return frame;
    }
    const { group, sub } = frame;
    const events = frame.events.filter(({ ctx }) => {
      const reason = this.#faults.failure(group);
      if (reason !== undefined) {
        this.#say({ op: "NACK", token: ctx.token ?? "", reason, delay_ms: 0 });
        this.#say({ op: "CREDIT", sub, credit: 1 });
        return false;
      }
      this.#groups.set(ctx.token ?? "", group);
      return true;
    });
    return events.length === 0 ? undefined : { ...frame, events };
  }

  outgoing(frame: Asked): Asked[] {
    if (frame.op === "SUBSCRIBE" && frame.group !== undefined) {
      this.#faults.joins(frame);
    }
    if (frame.op === "ACK") {
      return [this.#isLost(frame.token) ? this.#lost(frame.token, frame.corr) : frame];
    }
    if (frame.op !== "ACKS") {
      return [frame];
    }
    const lost = frame.tokens.filter((token) => this.#isLost(token));
    const kept = frame.tokens.filter((token) => !lost.includes(token));
    if (lost.length === 0 || frame.corr === undefined) {
      return [frame];
    }
    this.#taken.set(frame.corr, lost.length);
    const nacks = lost.map((token) => this.#lost(token, undefined));
    if (kept.length === 0) {
      // One of them has to bring the answer.
      return [...nacks.slice(1), { ...(nacks[0] as Asked), corr: frame.corr }];
    }
    return [...nacks, { ...frame, tokens: kept }];
  }

  #isLost(token: string): boolean {
    const group = this.#groups.get(token);
    this.#groups.delete(token);
    return group !== undefined && this.#faults.loss(group) !== undefined;
  }

  #lost(token: string, corr: number | undefined): Asked {
    const frame = { op: "NACK", token, reason: "the ack was lost", delay_ms: 0 } as const;
    return corr === undefined ? frame : { ...frame, corr };
  }

  #say(frame: ClientFrame): void {
    this.#send(JSON.stringify(frame));
  }
}
