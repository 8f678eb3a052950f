use futures_core::future::BoxFuture;

use super::factory::StoreFactory;

/// What a check comes to: nothing, or what was violated.
pub type Check<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A check with its name, which is the promise.
#[derive(Debug, Clone, Copy)]
pub struct NamedCheck {
    /// Its name.
    pub name: &'static str,
    /// Runs it on stores of a factory.
    pub run: for<'a> fn(&'a dyn StoreFactory) -> BoxFuture<'a, Check>,
}

/// Violated unless it holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+).into());
        }
    };
}

/// Violated unless both are the same.
macro_rules! ensure_same {
    ($found:expr, $expected:expr, $($text:tt)+) => {{
        let (found, expected) = (&$found, &$expected);
        if found != expected {
            let text = format!($($text)+);
            return Err(format!("{text}: found {found:?}, expected {expected:?}").into());
        }
    }};
}

/// The checks of a module.
macro_rules! checks {
    ($($name:ident),+ $(,)?) => {
        pub(super) const CHECKS: &[super::NamedCheck] = &[$(super::NamedCheck {
            name: stringify!($name),
            run: |factory| Box::pin($name(factory)),
        }),+];
    };
}
