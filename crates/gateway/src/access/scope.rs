use promethean_event::Pattern;

use super::action::Area;
use super::pattern::GroupGlob;
use super::policy::{Effect, Right, Rule};

/// A scope that begins like one of ours and is none. Such a token is refused as a whole: to guess
/// what was meant could only be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "scope {0:?} is not publish:<pattern>, subscribe:<pattern>[@group] or admin:<area>, with ! \
     before it to forbid"
)]
pub struct ScopeError(String);

/// What stands before a scope that forbids.
pub(super) const DENY: char = '!';

/// The rule that a scope stands for; none for scopes of others, such as `openid`.
pub(super) fn read(scope: &str) -> Result<Option<Rule>, ScopeError> {
    let refused = || ScopeError(scope.chars().take(64).collect());
    let (effect, text) = match scope.strip_prefix(DENY) {
        Some(denied) => (Effect::Deny, denied),
        None => (Effect::Allow, scope),
    };
    let (kind, rest) = match text.split_once(':') {
        Some((kind, rest)) => (kind, rest),
        None => (text, ""),
    };
    let right = match kind {
        "publish" => Right::Publish { topics: Pattern::new(rest).map_err(|_| refused())? },
        "subscribe" => {
            let (topics, group) = match rest.split_once('@') {
                Some((topics, group)) => (topics, Some(GroupGlob::new(group).ok_or_else(refused)?)),
                None => (rest, None),
            };
            Right::Subscribe { topics: Pattern::new(topics).map_err(|_| refused())?, group }
        }
        "admin" => Right::Admin { area: Area::named(rest).ok_or_else(refused)? },
        // What somebody meant to forbid must not be passed over.
        _ if effect == Effect::Deny => return Err(refused()),
        _ => return Ok(None),
    };
    Ok(Some(Rule { effect, right }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pitfall 67: `publish` alone became a right over everything, and patterns were cut.
    #[test]
    fn malformed_scopes_are_refused() {
        for scope in [
            "publish",
            "publish:",
            "publish:*bad",
            "publish:a..b",
            "publish:a:b",
            "publish:A",
            "subscribe",
            "subscribe:",
            "subscribe:@g",
            "subscribe:a@",
            "subscribe:a@b@c",
            "subscribe:a@b*c",
            "admin",
            "admin:",
            "admin:all",
            "admin:OPS",
            "!publish",
            "!!publish:a",
            "!openid",
            "! publish:a",
        ] {
            assert!(read(scope).is_err(), "{scope}");
        }
    }

    #[test]
    fn good_scopes_and_those_of_others() {
        for scope in [
            "publish:a.b",
            "publish:**",
            "subscribe:a.*",
            "subscribe:a.**@g",
            "subscribe:a@g-*",
            "admin:ops",
            "admin:**",
            "subscribe:$**",
        ] {
            assert!(matches!(read(scope), Ok(Some(_))), "{scope}");
        }
        let denied = read("!subscribe:a@g").unwrap().unwrap();
        assert_eq!(denied.effect, Effect::Deny);
        assert_eq!(denied.right, read("subscribe:a@g").unwrap().unwrap().right);
        for scope in ["openid", "email", "read:users", "Publish:a", "publisher"] {
            assert_eq!(read(scope), Ok(None), "{scope}");
        }
    }
}
