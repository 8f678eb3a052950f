import type { AddressInfo } from "node:net";
import { connect, createServer, type Server, type Socket } from "node:net";

/** Passes bytes on to a server, and fails when told to. Its address stays when the server moves. */
export class Relay {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #target = 0;
  #online = true;

  private constructor() {
    this.#server = createServer((client) => this.#pass(client));
  }

  static async start(): Promise<Relay> {
    const relay = new Relay();
    await new Promise<void>((resolve, reject) => {
      relay.#server.once("error", reject);
      relay.#server.listen(0, "127.0.0.1", resolve);
    });
    return relay;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Where new connections go. */
  aim(port: number): void {
    this.#target = port;
  }

  /** Cuts every connection, without a word. How many there were. */
  drop(): number {
    const dropped = [...this.#sockets];
    for (const socket of dropped) {
      socket.destroy();
    }
    return dropped.length / 2;
  }

  offline(): void {
    this.#online = false;
    this.drop();
  }

  online(): void {
    this.#online = true;
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.drop();
    await closed;
  }

  #pass(client: Socket): void {
    if (!this.#online) {
      client.destroy();
      return;
    }
    const server = connect(this.#target, "127.0.0.1");
    for (const [socket, other] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
      socket.pipe(other);
    }
  }
}
