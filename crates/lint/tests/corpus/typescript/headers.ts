declare const bus: any;
const CORRELATION = "correlationId";
const extra = { "x-extra": "1", Extra: "2" };
const options = { key: "k", headers: { "x-good": "1", Options: "2" } };

bus.publish("header.plain", {}, { headers: { "x-good": "1", "content-type": "a", traceparent: "b" } }); // @publish header.plain
bus.publish("header.unquoted", {}, { headers: { tenant: "a", "x-ok": "b" } }); // @publish header.unquoted
bus.publish("header.nested", {}, { // @publish header.nested
  headers: { "x-nested": JSON.stringify({ a: { b: 1 } }), Nested: "after braces" },
});
bus.publish("header.computed", {}, { headers: { [CORRELATION]: "1" } }); // @publish header.computed
bus.publish("header.spread", {}, { headers: { ...extra, "x-own": "1" } }); // @publish header.spread
bus.publish("header.constant", {}, options); // @publish header.constant
bus.publish("header.upper", {}, { headers: { "x-change-clusterTime": "1" } }); // @publish header.upper
bus.publish("header.chained", {}).tag("#a").header("Chained", "1"); // @publish header.chained
const headers = { shorthand: "1" };
bus.publish("header.shorthand", {}, { headers }); // @publish header.shorthand
bus.publish("header.underscore", {}, { headers: { x_under_score: "1" } }); // @publish header.underscore
