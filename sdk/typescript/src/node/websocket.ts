/**
 * A WebSocket client for Node versions that have none: RFC 6455 over the upgrade of `node:http`. It
 * does what `prom.v1` needs: text, pings, fragments, close; no extensions.
 */
import { createHash, randomBytes } from "node:crypto";
import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Socket as TcpSocket } from "node:net";
import { PromError } from "../error.js";
import { problemError } from "../http.js";
import { SERVER_FRAME_BYTES_MAX } from "../limits.js";
import { type OpenSocket, type Socket, type SocketEvents, SUBPROTOCOL } from "../socket.js";
import {
  encodeFrame,
  FrameError,
  FrameReader,
  OP_CLOSE,
  OP_CONTINUATION,
  OP_PING,
  OP_PONG,
  OP_TEXT,
  type WebSocketFrame,
} from "./websocket-frame.js";

const MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const HANDSHAKE_MS = 10_000;
const CLOSE_MS = 2_000;
const PROBLEM_BYTES_MAX = 64 * 1024;

/** Opens a WebSocket without anything of the platform but TCP, TLS and HTTP. */
export const openNodeSocket: OpenSocket = (url, events) => new NodeSocket(url, events);

class NodeSocket implements Socket {
  readonly #url: string;
  readonly #events: SocketEvents;
  readonly #request: ClientRequest;
  readonly #reader = new FrameReader(SERVER_FRAME_BYTES_MAX);
  #tcp: TcpSocket | undefined;
  #fragments: Buffer[] = [];
  #corked = false;
  #closing = false;
  #ended = false;

  constructor(url: string, events: SocketEvents) {
    this.#url = url;
    this.#events = events;
    const target = new URL(url);
    const secure = target.protocol === "wss:";
    target.protocol = secure ? "https:" : "http:";
    const key = randomBytes(16).toString("base64");
    const headers = {
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      "sec-websocket-key": key,
      "sec-websocket-protocol": SUBPROTOCOL,
    };
    const open = secure ? httpsRequest : httpRequest;
    this.#request = open(target, { headers, timeout: HANDSHAKE_MS, agent: false });
    this.#request.on("upgrade", (answer, tcp, head) => this.#upgraded(answer, key, tcp, head));
    this.#request.on("response", (answer) => this.#refused(answer));
    this.#request.on("timeout", () => this.#request.destroy(new Error("no answer in time")));
    this.#request.on("error", (cause) => {
      const text = `no connection to ${this.#url} (${cause.message})`;
      this.#end(1006, "", new PromError("unreachable", text, { cause }));
    });
    this.#request.end();
  }

  send(text: string): void {
    this.#write(OP_TEXT, Buffer.from(text));
  }

  close(code: number, reason: string): void {
    if (this.#tcp === undefined) {
      this.#ended = true;
      this.#request.destroy();
      return;
    }
    if (this.#closing) {
      return;
    }
    this.#closing = true;
    const content = Buffer.alloc(2 + Buffer.byteLength(reason));
    content.writeUInt16BE(code);
    content.write(reason, 2);
    const tcp = this.#tcp;
    tcp.write(encodeFrame(OP_CLOSE, content));
    tcp.end();
    // A peer that is gone does not answer.
    setTimeout(() => tcp.destroy(), CLOSE_MS).unref();
  }

  #upgraded(answer: IncomingMessage, key: string, tcp: TcpSocket, head: Buffer): void {
    const expected = createHash("sha1")
      .update(key + MAGIC)
      .digest("base64");
    if (answer.headers["sec-websocket-accept"] !== expected || this.#ended) {
      tcp.destroy();
      const error = new PromError("unreachable", `${this.#url} does not speak WebSocket`);
      this.#end(1006, "", error);
      return;
    }
    this.#tcp = tcp;
    // The request had a deadline; a connection may be quiet.
    tcp.setTimeout(0);
    tcp.setNoDelay(true);
    tcp.setKeepAlive(true, 30_000);
    tcp.on("error", () => tcp.destroy());
    tcp.on("close", () => this.#end(1006, ""));
    tcp.on("data", (chunk) => this.#take(chunk));
    this.#events.opened();
    if (head.length > 0) {
      this.#take(head);
    }
  }

  #refused(answer: IncomingMessage): void {
    const chunks: Buffer[] = [];
    let bytes = 0;
    answer.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes <= PROBLEM_BYTES_MAX) {
        chunks.push(chunk);
      }
    });
    answer.on("end", () => {
      const text = Buffer.concat(chunks).toString();
      this.#end(1006, "", problemError(answer.statusCode ?? 0, text));
      this.#request.destroy();
    });
  }

  #take(chunk: Buffer): void {
    this.#reader.push(chunk);
    try {
      for (let frame = this.#reader.next(); frame !== undefined; frame = this.#reader.next()) {
        this.#frame(frame);
      }
    } catch (error) {
      if (!(error instanceof FrameError)) {
        throw error;
      }
      this.#end(error.closeCode, error.message, new PromError("protocol_error", error.message));
      this.close(error.closeCode, "");
    }
  }

  #frame(frame: WebSocketFrame): void {
    switch (frame.op) {
      case OP_TEXT:
      case OP_CONTINUATION:
        this.#text(frame);
        break;
      case OP_PING:
        this.#write(OP_PONG, frame.content);
        break;
      case OP_PONG:
        break;
      case OP_CLOSE: {
        const { content } = frame;
        const code = content.length >= 2 ? content.readUInt16BE() : 1005;
        const reason = content.subarray(2).toString();
        this.close(code === 1005 ? 1000 : code, "");
        this.#end(code, reason);
        break;
      }
      default:
        throw new FrameError(1003, "the server sent a frame that is not text");
    }
  }

  #text(frame: WebSocketFrame): void {
    const begins = frame.op === OP_TEXT;
    const open = this.#fragments.length > 0;
    if (begins === open) {
      throw new FrameError(1002, "the server mixed up its fragments");
    }
    if (begins && frame.final) {
      this.#events.received(frame.content.toString());
      return;
    }
    this.#fragments.push(frame.content);
    const bytes = this.#fragments.reduce((sum, one) => sum + one.length, 0);
    if (bytes > SERVER_FRAME_BYTES_MAX) {
      throw new FrameError(1009, "a message is too large");
    }
    if (frame.final) {
      const whole = Buffer.concat(this.#fragments);
      this.#fragments = [];
      this.#events.received(whole.toString());
    }
  }

  /** What is written in one turn of the event loop leaves in one piece. */
  #write(op: number, content: Buffer): void {
    const tcp = this.#tcp;
    if (tcp === undefined || this.#closing) {
      return;
    }
    if (!this.#corked) {
      this.#corked = true;
      tcp.cork();
      setImmediate(() => {
        this.#corked = false;
        tcp.uncork();
      });
    }
    tcp.write(encodeFrame(op, content));
  }

  #end(code: number, reason: string, error?: PromError): void {
    if (!this.#ended) {
      this.#ended = true;
      this.#events.closed(code, reason, error);
    }
  }
}
