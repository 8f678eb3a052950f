/** The small `EventBus` of `eventbus.ts`, for Node. */
import { type BusOptions, Bus as PlainBus } from "../bus.js";
import { RemoteEventBus as PlainEventBus } from "../eventbus.js";
import { Bus } from "./index.js";

export * from "../eventbus.js";

export class RemoteEventBus extends PlainEventBus {
  constructor(bus: PlainBus | BusOptions = {}) {
    super(bus instanceof PlainBus ? bus : new Bus(bus));
  }
}
