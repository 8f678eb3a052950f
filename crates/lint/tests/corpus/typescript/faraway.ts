import { relay } from "./relay";
import later from "./send.later";

relay(hub, "wrapped.faraway"); // @publish wrapped.faraway
later("wrapped.default"); // @publish wrapped.default
