use futures_util::FutureExt;
use promethean::schema::Mode;
use serde::{Deserialize, Serialize};

use super::super::endpoint::{Endpoint, Verb};
use super::refusal::Trouble;
use super::{Call, answered, body, changes, may_change, shows, subject, topic};

const GLOBAL: &[&str] = &["defaultToGlobal"];

pub(super) const ENDPOINTS: [Endpoint; 9] = [
    shows(
        "/config",
        GLOBAL,
        "The compatibility of all topics, as Confluent's tools ask.",
        |call| answered(level(call)).boxed(),
    ),
    changes(
        (Verb::Put, "/config"),
        &[],
        "Sets the compatibility of all topics, as Confluent's tools do.",
        |call| answered(set_level(call)).boxed(),
    ),
    shows(
        "/config/{subject}",
        GLOBAL,
        "The compatibility of a topic, as Confluent's tools ask.",
        |call| answered(level_of(call)).boxed(),
    ),
    changes(
        (Verb::Put, "/config/{subject}"),
        GLOBAL,
        "Sets the compatibility of a topic, as Confluent's tools do.",
        |call| answered(set_level_of(call)).boxed(),
    ),
    changes(
        (Verb::Delete, "/config/{subject}"),
        &[],
        "Has a topic go by the compatibility of all, as Confluent's tools do.",
        |call| answered(clear_level_of(call)).boxed(),
    ),
    shows("/mode", GLOBAL, "Always READWRITE, as Confluent's tools ask.", |_| {
        answered(async { Ok(READ_WRITE) }).boxed()
    }),
    changes((Verb::Put, "/mode"), &["force"], "Takes READWRITE, and nothing else.", |call| {
        answered(set_mode(call)).boxed()
    }),
    shows("/mode/{subject}", GLOBAL, "Always READWRITE, as Confluent's tools ask.", |call| {
        answered(mode_of(call)).boxed()
    }),
    changes(
        (Verb::Put, "/mode/{subject}"),
        &["force"],
        "Takes READWRITE for a topic, and nothing else.",
        |call| answered(set_mode(call)).boxed(),
    ),
];

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Level {
    compatibility_level: String,
}

/// The same, as it is said when it is set.
#[derive(Serialize, Deserialize)]
struct Wanted {
    compatibility: String,
}

impl Level {
    fn of(mode: Mode) -> Self {
        Self { compatibility_level: mode.to_string().to_uppercase() }
    }
}

async fn wanted(call: &mut Call) -> Result<(Mode, Wanted), Trouble> {
    let wanted: Wanted = body(call).await?;
    let mode = wanted.compatibility.parse().map_err(|_| Trouble::invalid_level())?;
    Ok((mode, wanted))
}

async fn level(call: Call) -> Result<Level, Trouble> {
    Ok(Level::of(call.edge.bus.schemas().registry_policy().await?.topics.compat))
}

async fn set_level(mut call: Call) -> Result<Wanted, Trouble> {
    let (mode, wanted) = wanted(&mut call).await?;
    let schemas = call.edge.bus.schemas();
    let mut policy = schemas.registry_policy().await?;
    policy.topics.compat = mode;
    schemas.set_registry_policy(policy).await?;
    Ok(wanted)
}

async fn level_of(call: Call) -> Result<Level, Trouble> {
    let topic = topic(&call).await?;
    let schemas = call.edge.bus.schemas();
    match schemas.own_policy(&topic).await? {
        Some(policy) => Ok(Level::of(policy.compat)),
        None if call.query.text("defaultToGlobal") == Some("true") => {
            Ok(Level::of(schemas.policy(&topic).await?.compat))
        }
        None => Err(Trouble::no_config(&subject(&call)?)),
    }
}

async fn set_level_of(mut call: Call) -> Result<Wanted, Trouble> {
    let topic = topic(&call).await?;
    let (mode, wanted) = wanted(&mut call).await?;
    let schemas = call.edge.bus.schemas();
    let mut policy = schemas.policy(&topic).await?;
    policy.compat = mode;
    schemas.set_policy(&topic, policy).await?;
    Ok(wanted)
}

/// The rest of the topic's policy stays; only its compatibility goes back to that of all.
async fn clear_level_of(call: Call) -> Result<Level, Trouble> {
    let topic = topic(&call).await?;
    let schemas = call.edge.bus.schemas();
    let Some(mut own) = schemas.own_policy(&topic).await? else {
        return Err(Trouble::no_config(&subject(&call)?));
    };
    let was = own.compat;
    let all = schemas.registry_policy().await?.topics;
    own.compat = all.compat;
    match own == all {
        true => schemas.clear_policy(&topic).await?,
        false => schemas.set_policy(&topic, own).await?,
    }
    Ok(Level::of(was))
}

#[derive(Serialize, Deserialize)]
struct WriteMode<T> {
    mode: T,
}

const READ_WRITE: WriteMode<&str> = WriteMode { mode: "READWRITE" };

async fn mode_of(call: Call) -> Result<WriteMode<&'static str>, Trouble> {
    topic(&call).await?;
    Ok(READ_WRITE)
}

async fn set_mode(mut call: Call) -> Result<WriteMode<&'static str>, Trouble> {
    may_change(&call)?;
    let wanted: WriteMode<String> = body(&mut call).await?;
    match wanted.mode.as_str() {
        "READWRITE" => Ok(READ_WRITE),
        "READONLY" | "READONLY_OVERRIDE" | "IMPORT" | "FORWARD" => Err(Trouble::not_permitted(
            "only READWRITE is kept here; take the right to change schemas from tokens instead",
        )),
        _ => Err(Trouble::invalid_mode()),
    }
}
