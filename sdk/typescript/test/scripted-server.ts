import type { ClientFrame, ServerFrame } from "../src/frame.js";
import type { OpenSocket, SocketEvents } from "../src/socket.js";

export type Asked = ClientFrame & { corr?: number };

/** A server that says what a test wants it to, in memory. */
export class ScriptedServer {
  /** Everything that clients said, in order. */
  readonly heard: Asked[] = [];
  epoch = "e1";
  /** Answers a frame; `undefined` says nothing. */
  answer: (frame: Asked) => ServerFrame | undefined = (frame) =>
    frame.corr === undefined ? undefined : { op: "OK", corr: frame.corr, sub: 1 };
  #events: SocketEvents | undefined;
  #waiting: { wanted: (frame: Asked) => boolean; resolve: (frame: Asked) => void }[] = [];

  readonly openSocket: OpenSocket = (_url, events) => {
    this.#events = events;
    queueMicrotask(() => {
      events.opened();
      const limits = { frame_bytes: 1024 * 1024 };
      const { epoch } = this;
      this.say({ op: "HELLO", protocol: "prom.v1", server: "s", epoch, session: "x", limits });
    });
    return {
      send: (text) => this.#hear(JSON.parse(text) as Asked),
      close: () => {
        this.#events = undefined;
      },
    };
  };

  say(frame: ServerFrame): void {
    this.#events?.received(JSON.stringify(frame));
  }

  /** Closes the connection, as a server or a network does. */
  hangUp(code = 1006, reason = ""): void {
    const events = this.#events;
    this.#events = undefined;
    events?.closed(code, reason);
  }

  /** The next frame of that kind. */
  next(wanted: (frame: Asked) => boolean): Promise<Asked> {
    return new Promise((resolve) => this.#waiting.push({ wanted, resolve }));
  }

  #hear(frame: Asked): void {
    this.heard.push(frame);
    const answer = this.answer(frame);
    if (answer !== undefined) {
      queueMicrotask(() => this.say(answer));
    }
    for (const waiting of this.#waiting.filter((one) => one.wanted(frame))) {
      this.#waiting = this.#waiting.filter((one) => one !== waiting);
      waiting.resolve(frame);
    }
  }
}
