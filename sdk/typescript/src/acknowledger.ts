import { codeOf, PromError } from "./error.js";
import type { Lease } from "./lease.js";
import { ACKS_TOKENS_MAX } from "./limits.js";
import type { Session } from "./session.js";

interface Waiting {
  lease: Lease;
  resolve: () => void;
  reject: (error: PromError) => void;
}

/** Acks that come together go out together, in one frame. */
export class Acknowledger {
  #waiting: Waiting[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Resolves when the ack is durable. */
  ack(lease: Lease): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ lease, resolve, reject });
      if (this.#waiting.length >= ACKS_TOKENS_MAX) {
        this.flush();
      } else {
        this.#timer ??= setTimeout(() => this.flush(), 0);
      }
    });
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const groups = grouped(this.#waiting);
    this.#waiting = [];
    for (const [session, acks] of groups) {
      void send(session, acks);
    }
  }
}

function grouped(waiting: readonly Waiting[]): Map<Session, Waiting[]> {
  const groups = new Map<Session, Waiting[]>();
  for (const one of waiting) {
    const group = groups.get(one.lease.session) ?? [];
    group.push(one);
    groups.set(one.lease.session, group);
  }
  return groups;
}

async function send(session: Session, acks: readonly Waiting[]): Promise<void> {
  const tokens = acks.map((one) => one.lease.token);
  if (tokens.length === 1) {
    return one(session, acks[0] as Waiting);
  }
  try {
    const answer = await session.request({ op: "ACKS", tokens });
    const refused = "refused" in answer ? (answer.refused ?? []) : [];
    const accepted = "accepted" in answer ? (answer.accepted ?? tokens.length) : tokens.length;
    if (accepted + refused.length < tokens.length) {
      // It does not say which were refused: each has to be asked about.
      for (const ack of acks) {
        void one(session, ack, { isAskedAgain: true });
      }
      return;
    }
    const codes = new Map(refused.map(({ token, code }) => [token, code]));
    for (const ack of acks) {
      const code = codes.get(ack.lease.token);
      if (code === undefined) {
        ack.resolve();
      } else {
        ack.reject(new PromError(codeOf(code), "the event was not acked"));
      }
    }
  } catch (error) {
    if (!session.isOpen) {
      for (const ack of acks) {
        ack.reject(error as PromError);
      }
      return;
    }
    // Not one of them: each says why.
    for (const ack of acks) {
      void one(session, ack);
    }
  }
}

async function one(
  session: Session,
  ack: Waiting,
  { isAskedAgain }: { isAskedAgain: boolean } = { isAskedAgain: false },
): Promise<void> {
  try {
    await session.request({ op: "ACK", token: ack.lease.token });
    ack.resolve();
  } catch (error) {
    // What had been accepted is a conflict when it is asked about again.
    if (isAskedAgain && (error as PromError).code === "conflict") {
      ack.resolve();
    } else {
      ack.reject(error as PromError);
    }
  }
}
