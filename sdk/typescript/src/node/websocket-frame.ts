/**
 * Frames of RFC 6455, section 5.2: two bytes of flags and length, 2 or 8 more bytes of length, four
 * of mask (from clients only), then the content.
 */
import { randomFillSync } from "node:crypto";

export const OP_CONTINUATION = 0x0;
export const OP_TEXT = 0x1;
export const OP_BINARY = 0x2;
export const OP_CLOSE = 0x8;
export const OP_PING = 0x9;
export const OP_PONG = 0xa;

export interface WebSocketFrame {
  final: boolean;
  op: number;
  content: Buffer;
}

/** A breach of the protocol, with the close code for it. */
export class FrameError extends Error {
  readonly closeCode: number;

  constructor(closeCode: number, message: string) {
    super(message);
    this.closeCode = closeCode;
  }
}

/** Masks from one pool: asking the system for four bytes at a time is slow. */
const masks = Buffer.alloc(4096);
let maskAt = masks.length;

function nextMask(): Buffer {
  if (maskAt >= masks.length) {
    randomFillSync(masks);
    maskAt = 0;
  }
  maskAt += 4;
  return masks.subarray(maskAt - 4, maskAt);
}

/** A whole frame, masked, as clients send it. */
export function encodeFrame(op: number, content: Buffer): Buffer {
  const { length } = content;
  const head = length < 126 ? 2 : length < 65_536 ? 4 : 10;
  const frame = Buffer.allocUnsafe(head + 4 + length);
  frame[0] = 0x80 | op;
  if (head === 2) {
    frame[1] = 0x80 | length;
  } else if (head === 4) {
    frame[1] = 0x80 | 126;
    frame.writeUInt16BE(length, 2);
  } else {
    frame[1] = 0x80 | 127;
    frame.writeBigUInt64BE(BigInt(length), 2);
  }
  const mask = nextMask();
  mask.copy(frame, head);
  const body = head + 4;
  for (let index = 0; index < length; index += 1) {
    frame[body + index] = (content[index] as number) ^ (mask[index & 3] as number);
  }
  return frame;
}

/** Cuts a stream of bytes into frames. */
export class FrameReader {
  readonly #bytesMax: number;
  #chunks: Buffer[] = [];
  #have = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#have += chunk.length;
  }

  /** The next whole frame, if it is there. */
  next(): WebSocketFrame | undefined {
    if (this.#have < 2) {
      return undefined;
    }
    const start = this.#peek(Math.min(this.#have, 10));
    const first = start[0] as number;
    const short = (start[1] as number) & 0x7f;
    if ((first & 0x70) !== 0 || ((start[1] as number) & 0x80) !== 0) {
      throw new FrameError(1002, "the server sent a frame that nobody agreed to");
    }
    const head = short < 126 ? 2 : short === 126 ? 4 : 10;
    if (this.#have < head) {
      return undefined;
    }
    const length =
      head === 2 ? short : head === 4 ? start.readUInt16BE(2) : Number(start.readBigUInt64BE(2));
    if (length > this.#bytesMax) {
      throw new FrameError(1009, `a frame of ${length} bytes is too large`);
    }
    if (this.#have < head + length) {
      return undefined;
    }
    const whole = this.#peek(head + length);
    const rest = (this.#chunks.shift() as Buffer).subarray(whole.length);
    if (rest.length > 0) {
      this.#chunks.unshift(rest);
    }
    this.#have -= whole.length;
    return { final: (first & 0x80) !== 0, op: first & 0x0f, content: whole.subarray(head) };
  }

  /** The first bytes in one piece. */
  #peek(count: number): Buffer {
    if ((this.#chunks[0]?.length ?? 0) < count) {
      this.#chunks = [Buffer.concat(this.#chunks)];
    }
    return (this.#chunks[0] as Buffer).subarray(0, count);
  }
}
