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
    publish_and_consume = "../examples/1-publish-and-consume.rs",
    groups = "../examples/2-groups.rs",
    retries_and_dead_letters = "../examples/3-retries-and-dead-letters.rs",
    partitions = "../examples/4-partitions.rs",
    outbox = "../examples/5-outbox.rs",
    typed_topics = "../examples/6-typed-topics.rs",
    transactional_projection = "../examples/7-transactional-projection.rs",
}
