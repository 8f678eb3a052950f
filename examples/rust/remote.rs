//! Orders and bills, with the bus in a server: `cargo run -p promethean-client --example remote -- URL`.
//! `embedded.rs` is the same program with the bus in this process: one line differs.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use promethean::event::{GroupName, Key, Topic};
use promethean::{Failure, Start, topic};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    number: u32,
    customer: String,
    cents: i64,
}

topic! { Order => "orders.placed", version = 1, key = |order| order.customer.clone() }

fn order(number: u32, customer: &str, cents: i64) -> Order {
    Order { number, customer: customer.to_owned(), cents }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = std::env::args().nth(1).ok_or("say where the bus is")?;
    run(&place).await
}

pub(crate) async fn run(place: &str) -> Result<(), Box<dyn std::error::Error>> {
    let bus = promethean_client::Bus::connect(place).await?;

    for order in [order(1, "ada", 1_200), order(2, "bob", -5), order(3, "ada", 800)] {
        let published = bus.publish(&order).tag("#shop").await?;
        println!("order {} is durable at offset {}", order.number, published.offset);
    }

    let consumer = bus
        .subscribe::<Order>("billing")
        .from(Start::Earliest)
        .max_attempts(3)
        .handle(|delivered| async move {
            let order = delivered.payload()?;
            if order.cents < 0 {
                return Err(Failure::park("nobody owes less than nothing"));
            }
            println!("bill {} over {} cents", order.customer, order.cents);
            Ok(())
        })
        .await?;
    let billing: GroupName = "billing".parse()?;
    bus.caught_up(&billing).await?;
    consumer.stop().await?;

    let orders = Topic::new("orders.placed")?;
    let newest = bus.latest_by_key(&orders, vec![Key::new("ada")?]).await?;
    println!("the newest of ada: {:?}", newest.first());
    println!("unfinished: {}", bus.lag(&billing).await?.events());
    for letter in bus.dead_letters(&Default::default()).await? {
        println!("given up: {}", letter.letter.err);
    }
    bus.close().await;
    Ok(())
}
