//! What every store of views promises to projections: checks against the seam alone. A store joins
//! by writing a [`ViewPlace`].

mod bench_site;

mod commits;

mod order;

mod builds;

mod reading;

mod claims;

use std::fmt;
use std::sync::Arc;

use futures_core::future::{BoxFuture, LocalBoxFuture};
use promethean::projection::view_store::ViewStore;
use promethean::store::HubId;

use super::check::Check;

/// A store of views that is new.
pub trait ViewPlace: fmt::Debug + Send + Sync {
    /// Opens it: the same one each time.
    fn open(&self) -> BoxFuture<'_, Check<Arc<dyn ViewStore>>>;

    /// Has a hub be there, or not any more; nothing where views are not shared.
    fn attend(&self, hub: HubId, is_there: bool) -> BoxFuture<'_, Check>;
}

/// Makes new places.
pub type NewPlace<'a> = &'a (dyn Fn() -> BoxFuture<'a, Check<Box<dyn ViewPlace>>> + Sync);

/// A check with its name, which is the promise.
struct NamedCheck {
    name: &'static str,
    run: for<'a> fn(&'a dyn ViewPlace) -> LocalBoxFuture<'a, Check>,
}

/// The checks of a module.
macro_rules! view_checks {
    ($($name:ident),+ $(,)?) => {
        pub(super) const CHECKS: &[super::NamedCheck] = &[$(super::NamedCheck {
            name: stringify!($name),
            run: |place| Box::pin($name(place)),
        }),+];
    };
}
use view_checks;

/// Runs all checks, each with a place of its own. Gives every violation.
pub async fn run(place: NewPlace<'_>) -> Vec<String> {
    let suites = [commits::CHECKS, order::CHECKS, builds::CHECKS, reading::CHECKS, claims::CHECKS];
    let mut violations = Vec::new();
    for check in suites.into_iter().flatten() {
        let result = match place().await {
            Ok(place) => (check.run)(&*place).await,
            Err(error) => Err(error),
        };
        if let Err(violation) = result {
            violations.push(format!("{}: {violation}", check.name));
        }
    }
    violations
}
