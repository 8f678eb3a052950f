let newestMs = 0;
let counter = 0;

const hex = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/**
 * A UUIDv7 (RFC 9562): milliseconds, then a counter that keeps ids of one process in order within a
 * millisecond, then chance.
 */
export function newEventId(nowMs: number = Date.now()): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const view = new DataView(bytes.buffer);
  if (nowMs > newestMs) {
    newestMs = nowMs;
    // Half of the counter's room is left to count in.
    counter = view.getUint16(6) & 0x7ff;
  } else if (counter < 0xfff) {
    counter += 1;
  } else {
    // The millisecond is used up: borrow the next one rather than run backwards.
    newestMs += 1;
    counter = 0;
  }
  view.setUint16(0, Math.floor(newestMs / 2 ** 32));
  view.setUint32(2, newestMs >>> 0);
  view.setUint16(6, 0x7000 | counter);
  view.setUint8(8, 0x80 | (view.getUint8(8) & 0x3f));
  const text = Array.from(bytes, (byte) => hex[byte]).join("");
  const cut = (from: number, to: number) => text.slice(from, to);
  return `${cut(0, 8)}-${cut(8, 12)}-${cut(12, 16)}-${cut(16, 20)}-${cut(20, 32)}`;
}
