export declare function publish(topic: "IN A DECLARATION FILE"): void; publish("IN A DECLARATION FILE");
