//! Every example of the course runs.

macro_rules! course {
    ($($name:ident = $path:literal),* $(,)?) => {
        $(
            #[path = $path]
            #[allow(dead_code, unreachable_pub, reason = "an example's main is its own")]
            mod $name;

            #[tokio::test]
            async fn $name() {
                $name::run().await.unwrap();
            }
        )*
    };
}

course! {
    publish_and_consume = "../../../examples/rust/1-publish-and-consume.rs",
    groups = "../../../examples/rust/2-groups.rs",
    retries_and_dead_letters = "../../../examples/rust/3-retries-and-dead-letters.rs",
    partitions = "../../../examples/rust/4-partitions.rs",
    outbox = "../../../examples/rust/5-outbox.rs",
    typed_topics = "../../../examples/rust/6-typed-topics.rs",
    transactional_projection = "../../../examples/rust/7-transactional-projection.rs",
}
