import { PromError } from "./error.js";

/** A WebSocket that is being opened, or is open. */
export interface Socket {
  send(text: string): void;
  /** Closes it; `closed` may come late or never. */
  close(code: number, reason: string): void;
}

/** What a socket tells. After `closed` nothing comes any more. */
export interface SocketEvents {
  opened(): void;
  received(text: string): void;
  closed(code: number, reason: string, error?: PromError): void;
}

/** Opens a socket with the subprotocol `prom.v1`. */
export type OpenSocket = (url: string, events: SocketEvents) => Socket;

export const SUBPROTOCOL = "prom.v1";

/** The WebSocket of the platform: browsers, workers, Node 22 and later, Deno, Bun. */
export const openPlatformSocket: OpenSocket = (url, events) => {
  const socket = new WebSocket(url, [SUBPROTOCOL]);
  socket.onopen = () => events.opened();
  socket.onmessage = (message) => events.received(String(message.data));
  // What an error was about is kept from pages; the close that follows says as much as there is.
  socket.onclose = (close) => {
    const opened = close.code !== 1006;
    const failed = opened ? undefined : new PromError("unreachable", `no connection to ${url}`);
    events.closed(close.code, close.reason, failed);
  };
  return {
    send: (text) => socket.send(text),
    // Pages may only say 1000 and 3000 to 4999.
    close: (code, reason) => socket.close(code === 1000 || code >= 3000 ? code : 4000, reason),
  };
};
