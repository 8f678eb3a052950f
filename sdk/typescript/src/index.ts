/**
 * Client of Promethean, for browsers and every platform with a WebSocket of its own. In Node, the
 * entry is `node/index.ts`.
 */
import { Bus, type ConnectOptions } from "./bus.js";

export { Bus, type BusOptions, type ConnectOptions } from "./bus.js";
export type { ConnectionState, StateChange } from "./connection.js";
export { Consumer, type EventHandler, type HandlerContext } from "./consumer.js";
export { Delivery } from "./delivery.js";
export type { Duration } from "./duration.js";
export { type ErrorCode, PromError } from "./error.js";
export { newEventId } from "./event-id.js";
export type { Followed } from "./follow.js";
export type { Cursor, EventRecord, Gap } from "./frame.js";
export { Outcome, Park, Retry, Skip } from "./outcome.js";
export type { PublishEntry, PublishOptions } from "./publish-options.js";
export type { DeadLetter, GroupLag, HistoryQuery, SeekReport } from "./resources.js";
export type { RegisteredSchema, RegisterOptions, SchemaDocument } from "./schemas.js";
export type { TokenSource } from "./session.js";
export type { OpenSocket, Socket, SocketEvents } from "./socket.js";
export type { StandardSchema } from "./standard-schema.js";
export { DeliveryStream } from "./stream.js";
export type { ConsumeOptions, From, GroupOptions, TailOptions } from "./subscribe-options.js";
export { Tail } from "./tail.js";
export { type PayloadOf, type Source, type Topic, topic, UnreadablePayload } from "./topic.js";

export type { Trace, TraceNode, TraceOptions } from "./trace.js";
export type {
  Change,
  DocumentHead,
  EventRef,
  Moment,
  Past,
  Told,
  ViewDocument,
  Views,
} from "./views.js";

/** Connects to a server. Fails if there is none in time; later losses are mended by themselves. */
export async function connect(options: ConnectOptions = {}): Promise<Bus> {
  const bus = new Bus(options);
  try {
    await bus.connected(options);
  } catch (error) {
    await bus.close();
    throw error;
  }
  return bus;
}
