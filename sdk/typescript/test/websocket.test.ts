import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo, Socket as TcpSocket } from "node:net";
import { test } from "node:test";
import { harness } from "../src/harness/index.js";
import { openNodeSocket } from "../src/node/websocket.js";
import { encodeFrame, FrameError, FrameReader } from "../src/node/websocket-frame.js";
import { Collected, Signal } from "./signals.js";

/** A frame as servers send it: not masked. */
function serverFrame(first: number, content: Buffer): Buffer {
  const { length } = content;
  if (length < 126) {
    return Buffer.concat([Buffer.from([first, length]), content]);
  }
  const head = Buffer.alloc(length < 65_536 ? 4 : 10);
  head[0] = first;
  head[1] = length < 65_536 ? 126 : 127;
  if (length < 65_536) {
    head.writeUInt16BE(length, 2);
  } else {
    head.writeBigUInt64BE(BigInt(length), 2);
  }
  return Buffer.concat([head, content]);
}

test("frames of every length come out whole, however they are cut", () => {
  const contents = [0, 1, 125, 126, 127, 65_535, 65_536, 70_000].map((n) => Buffer.alloc(n, "é"));
  const bytes = Buffer.concat(contents.map((content) => serverFrame(0x81, content)));
  for (const cut of [1, 2, 3, 1_000, 65_537, bytes.length]) {
    const reader = new FrameReader(1_000_000);
    const found: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += cut) {
      reader.push(bytes.subarray(at, at + cut));
      for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
        assert.deepEqual([frame.final, frame.op], [true, 1]);
        found.push(Buffer.from(frame.content));
      }
    }
    assert.equal(found.length, contents.length);
    assert.ok(
      found.every((one, index) => one.equals(contents[index] as Buffer)),
      `cut ${cut}`,
    );
  }
});

test("what nobody agreed to is refused", () => {
  const refused = (bytes: number[], code: number) => {
    const reader = new FrameReader(1_000);
    reader.push(Buffer.from(bytes));
    assert.throws(
      () => reader.next(),
      (error) => error instanceof FrameError && error.closeCode === code,
    );
  };
  refused([0xc1, 0], 1002);
  refused([0x81, 0x80], 1002);
  refused([0x81, 126, 0x10, 0x00], 1009);
});

test("what a client sends is masked, and is what was meant", () => {
  for (const length of [5, 300, 70_000]) {
    const content = Buffer.alloc(length, "abc");
    const frame = encodeFrame(0x1, content);
    assert.equal((frame[1] as number) & 0x80, 0x80);
    const head = length < 126 ? 2 : length < 65_536 ? 4 : 10;
    const mask = frame.subarray(head, head + 4);
    const read = frame.subarray(head + 4).map((byte, index) => byte ^ (mask[index & 3] as number));
    assert.ok(Buffer.from(read).equals(content));
  }
});

/** A WebSocket server that sends bytes as a test wants them. */
async function rawServer(connected: (tcp: TcpSocket) => void) {
  const server = createServer();
  server.on("upgrade", (request, tcp) => {
    const key = `${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
    const accept = createHash("sha1").update(key).digest("base64");
    tcp.write(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
        `Sec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: prom.v1\r\n\r\n`,
    );
    connected(tcp as TcpSocket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return { url: `ws://127.0.0.1:${port}/ws`, close: () => server.close() };
}

test("fragments are put together, pings are answered, a close has its reason", async () => {
  const answered = new Signal<Buffer>();
  const server = await rawServer((tcp) => {
    tcp.once("data", (chunk) => answered.fire(chunk));
    tcp.write(serverFrame(0x01, Buffer.from("on")));
    tcp.write(serverFrame(0x89, Buffer.from("ping")));
    tcp.write(serverFrame(0x00, Buffer.from("e t")));
    tcp.write(serverFrame(0x80, Buffer.from("ext")));
    const reason = Buffer.concat([Buffer.from([0x03, 0xf4]), Buffer.from("going_away")]);
    tcp.write(serverFrame(0x88, reason));
  });
  const texts = new Collected<string>();
  const closed = new Signal<[number, string]>();
  openNodeSocket(server.url, {
    opened: () => {},
    received: texts.add,
    closed: (code, reason) => closed.fire([code, reason]),
  });
  assert.deepEqual(await closed.happened, [1012, "going_away"]);
  assert.deepEqual(texts.items, ["one text"]);
  const pong = await answered.happened;
  assert.equal((pong[0] as number) & 0x0f, 0xa);
  server.close();
});

test("a mixed-up server is left", async () => {
  const server = await rawServer((tcp) => {
    tcp.on("error", () => {});
    tcp.write(serverFrame(0x80, Buffer.from("no beginning")));
  });
  const closed = new Signal<string>();
  openNodeSocket(server.url, {
    opened: () => {},
    received: () => {},
    closed: (_code, _reason, error) => closed.fire(error?.code ?? ""),
  });
  assert.equal(await closed.happened, "protocol_error");
  server.close();
});

test("a server that refuses the upgrade says why", async () => {
  await using h = await harness();
  const closed = new Signal<string>();
  openNodeSocket(`${h.url}/nowhere`, {
    opened: () => {},
    received: () => {},
    closed: (_code, _reason, error) => closed.fire(error?.code ?? ""),
  });
  assert.equal(await closed.happened, "not_found");
});
