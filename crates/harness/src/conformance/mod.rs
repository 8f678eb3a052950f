//! What every store promises, as checks against the seam alone: `dyn Store` and a
//! [`StoreFactory`]. A store joins by writing a factory.
//!
//! [`faulty`] holds stores that are wrong on purpose, each of which the suite has to catch.

#[macro_use]
mod check;

pub mod factory;

mod scene;

pub mod bus;

pub mod outbox;

pub mod views;

mod append;

mod order;

mod idempotence;

mod reading;

mod lookups;

mod cleaning;

mod groups;

mod claims;

mod entries;

mod growth;

mod restart;

mod restoring;

mod migration;

mod concurrency;

pub mod faulty;

pub mod comparison;

pub use check::{Check, NamedCheck};
pub use factory::{Ending, StoreFactory};

/// Hands the names of all concerns to a macro: the suite is made of them, and every store's tests are,
/// so that none can leave one out.
#[macro_export]
macro_rules! for_each_concern {
    ($make:ident) => {
        $make!(
            append,
            order,
            idempotence,
            reading,
            lookups,
            cleaning,
            groups,
            claims,
            entries,
            growth,
            restart,
            restoring,
            migration,
            concurrency
        );
    };
}

macro_rules! suite {
    ($($concern:ident),+) => {
        /// All checks, by concern.
        pub const SUITE: &[(&str, &[NamedCheck])] =
            &[$((stringify!($concern), $concern::CHECKS)),+];
    };
}

for_each_concern!(suite);

/// Runs the checks of a concern, each with a factory of its own. Gives the first violation.
pub async fn run(concern: &str, factory: impl Fn() -> Box<dyn StoreFactory>) -> Option<String> {
    let checks = SUITE.iter().filter(|(name, _)| *name == concern).flat_map(|(_, checks)| *checks);
    for check in checks {
        let factory = factory();
        if let Err(violation) = (check.run)(&*factory).await {
            return Some(format!("{concern}: {}: {violation}", check.name));
        }
    }
    None
}
