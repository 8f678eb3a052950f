import { codeOf, PromError } from "./error.js";
import type {
  AnswerFrame,
  ClientFrame,
  ErrFrame,
  EventsFrame,
  Gap,
  HelloFrame,
  ServerFrame,
} from "./frame.js";
import { ANSWER_MS, HANDSHAKE_MS, QUIET_MS } from "./limits.js";
import type { OpenSocket, Socket } from "./socket.js";

/** A credential, or what gives one whenever it is needed: at each connect, and before it ends. */
export type TokenSource = string | (() => string | Promise<string>);

export interface SessionOptions {
  url: string;
  openSocket: OpenSocket;
  token: TokenSource | undefined;
}

/** Who gets the events of a subscription. */
export interface Feed {
  events(frame: EventsFrame): void;
  gap(gap: Gap): void;
  /** The server has ended the subscription; the connection stays. */
  ended(error: PromError): void;
}

/** What a session tells whoever keeps it. */
export interface SessionEvents {
  /** The server stops; the connection should be left in time. */
  draining(deadlineMs: number): void;
  /** The server refused something that was not asked by name. */
  refused(error: PromError): void;
  closed(error: PromError): void;
}

interface Waiting {
  sentAt: number;
  answered: ((answer: AnswerFrame) => void) | undefined;
  resolve: (answer: AnswerFrame) => void;
  reject: (error: PromError) => void;
}

/** One connection, from `HELLO` to its end. Requests are matched to answers by `corr`. */
export class Session {
  readonly hello: HelloFrame;
  readonly #socket: Socket;
  readonly #options: SessionOptions;
  readonly #waiting = new Map<number, Waiting>();
  readonly #feeds = new Map<number, Feed>();
  #events: SessionEvents | undefined;
  #corr = 0;
  #heardAt = performance.now();
  #watch: ReturnType<typeof setInterval> | undefined;
  #renewal: ReturnType<typeof setTimeout> | undefined;
  #ended: PromError | undefined;

  private constructor(socket: Socket, hello: HelloFrame, options: SessionOptions) {
    this.#socket = socket;
    this.hello = hello;
    this.#options = options;
  }

  /** Opens a socket, waits for `HELLO`, and says who the client is. */
  static async open(options: SessionOptions): Promise<Session> {
    const session = await greeted(options, (socket, hello) => new Session(socket, hello, options));
    try {
      await session.#authenticate();
    } catch (error) {
      session.close();
      throw error;
    }
    return session;
  }

  /** Whoever keeps the session begins to listen; what has happened is told at once. */
  listen(events: SessionEvents): void {
    this.#events = events;
    if (this.#ended !== undefined) {
      events.closed(this.#ended);
      return;
    }
    this.#watch = setInterval(() => this.#probe(), QUIET_MS / 5);
  }

  get isOpen(): boolean {
    return this.#ended === undefined;
  }

  /** Asks, and waits for the answer. `answered` runs before any later frame is looked at. */
  request(frame: ClientFrame, answered?: (answer: AnswerFrame) => void): Promise<AnswerFrame> {
    return this.requestText((corr) => JSON.stringify({ ...frame, corr }), answered);
  }

  /** Asks with a frame that is written already, but for its `corr`. */
  requestText(
    write: (corr: number) => string,
    answered?: (answer: AnswerFrame) => void,
  ): Promise<AnswerFrame> {
    if (this.#ended !== undefined) {
      return Promise.reject(this.#ended);
    }
    this.#corr += 1;
    const corr = this.#corr;
    const answer = new Promise<AnswerFrame>((resolve, reject) => {
      this.#waiting.set(corr, { sentAt: performance.now(), answered, resolve, reject });
    });
    this.#socket.send(write(corr));
    return answer;
  }

  /** Says something that is only answered if it is refused. */
  post(frame: ClientFrame): void {
    if (this.#ended === undefined) {
      this.#socket.send(JSON.stringify(frame));
    }
  }

  feed(sub: number, feed: Feed): void {
    this.#feeds.set(sub, feed);
  }

  unfeed(sub: number): void {
    this.#feeds.delete(sub);
  }

  close(): void {
    this.abandon(new PromError("closed", "the connection was closed here"));
  }

  /** Ends it from this side, for a reason. */
  abandon(error: PromError): void {
    this.ended(error);
    this.#socket.close(1000, "");
  }

  /** A frame has come. Called by the socket. */
  received(text: string): void {
    this.#heardAt = performance.now();
    let frame: ServerFrame;
    try {
      frame = JSON.parse(text) as ServerFrame;
    } catch (cause) {
      this.abandon(new PromError("protocol_error", "the server sent what is not JSON", { cause }));
      return;
    }
    switch (frame.op) {
      case "EVENTS":
        this.#feeds.get(frame.sub)?.events(frame);
        break;
      case "OK":
      case "RESUMED":
        this.#answered(frame);
        break;
      case "ERR":
        this.#refused(frame);
        break;
      case "GAP":
        this.#feeds.get(frame.sub)?.gap(frame);
        break;
      case "DRAIN":
        this.#events?.draining(frame.deadline_ms);
        break;
    }
  }

  /** The connection is gone: everything that waits fails. Called by the socket. */
  ended(error: PromError): void {
    if (this.#ended !== undefined) {
      return;
    }
    this.#ended = error;
    clearInterval(this.#watch);
    clearTimeout(this.#renewal);
    for (const waiting of this.#waiting.values()) {
      waiting.reject(error);
    }
    this.#waiting.clear();
    this.#feeds.clear();
    this.#events?.closed(error);
  }

  #answered(frame: AnswerFrame): void {
    const waiting = this.#take(frame.corr);
    waiting?.answered?.(frame);
    waiting?.resolve(frame);
  }

  #refused(frame: ErrFrame): void {
    const error = new PromError(codeOf(frame.code), frame.msg, { retryMs: frame.retry_ms });
    if (frame.sub !== undefined) {
      const feed = this.#feeds.get(frame.sub);
      this.#feeds.delete(frame.sub);
      feed?.ended(error);
      return;
    }
    const waiting = this.#take(frame.corr);
    if (waiting === undefined) {
      this.#events?.refused(error);
    } else {
      waiting.reject(error);
    }
  }

  #take(corr: number | undefined): Waiting | undefined {
    const waiting = corr === undefined ? undefined : this.#waiting.get(corr);
    if (corr !== undefined) {
      this.#waiting.delete(corr);
    }
    return waiting;
  }

  async #authenticate(): Promise<void> {
    const { token } = this.#options;
    if (token === undefined) {
      return;
    }
    const credential = typeof token === "string" ? token : await token();
    const answer = await this.request({ op: "AUTH", token: credential });
    const expiresAt = "expires_at" in answer ? answer.expires_at : undefined;
    if (expiresAt !== undefined && typeof token === "function" && this.isOpen) {
      // Well before it ends, also if the clocks are not quite together.
      const aheadMs = Math.max(1_000, (expiresAt - Date.now()) * 0.8);
      this.#renewal = setTimeout(() => this.#renew(), Math.min(aheadMs, 2 ** 31 - 1));
    }
  }

  #renew(): void {
    this.#authenticate().catch((error: unknown) => {
      const refused = error instanceof PromError ? error : undefined;
      this.#events?.refused(
        refused ?? new PromError("unauthorized", "no new token could be had", { cause: error }),
      );
    });
  }

  /** Finds out whether a connection that is quiet is still there. */
  #probe(): void {
    const now = performance.now();
    const oldest = this.#waiting.values().next().value;
    const quietMs = now - this.#heardAt;
    if (oldest !== undefined && now - oldest.sentAt > ANSWER_MS && quietMs > ANSWER_MS) {
      this.abandon(new PromError("disconnected", "the server does not answer"));
      return;
    }
    const [sub] = this.#feeds.keys();
    if (quietMs > QUIET_MS && oldest === undefined && sub !== undefined) {
      // No credit more: asked only to be answered.
      this.request({ op: "CREDIT", sub, credit: 0 }).catch(() => {});
    }
  }
}

/** Why a connection ended, by what the server said when it closed it. */
function closeError(code: number, reason: string): PromError {
  if (reason !== "") {
    return new PromError(codeOf(reason), `the server closed the connection (${code})`);
  }
  return new PromError("disconnected", `the connection was closed (${code})`);
}

function greeted(
  options: SessionOptions,
  make: (socket: Socket, hello: HelloFrame) => Session,
): Promise<Session> {
  return new Promise((resolve, reject) => {
    let session: Session | undefined;
    let settled = false;
    const timer = setTimeout(() => {
      fail(new PromError("unreachable", `no greeting from ${options.url}: is it Promethean?`));
    }, HANDSHAKE_MS);
    const fail = (error: PromError) => {
      clearTimeout(timer);
      settled = true;
      socket?.close(1000, "");
      reject(error);
    };
    const socket: Socket | undefined = options.openSocket(options.url, {
      opened: () => {},
      received: (text) => {
        if (session !== undefined) {
          session.received(text);
          return;
        }
        if (settled || socket === undefined) {
          return;
        }
        const hello = JSON.parse(text) as ServerFrame;
        if (hello.op !== "HELLO") {
          fail(new PromError("unreachable", `${options.url} does not speak prom.v1`));
          return;
        }
        clearTimeout(timer);
        session = make(socket, hello);
        resolve(session);
      },
      closed: (code, reason, error) => {
        const why = error ?? closeError(code, reason);
        if (session === undefined) {
          fail(why);
        } else {
          session.ended(why);
        }
      },
    });
  });
}
