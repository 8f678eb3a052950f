use promethean_event::{GroupName, Pattern, Topic};

use super::action::{Action, Area, Resource};
use super::pattern::{GroupGlob, covers, overlap};
use super::scope::{self, ScopeError};
use crate::limits::RULES_MAX;

/// What topics that hold copies of a topic's events are called, before and after its name: its dead
/// letters, its snapshot, and, as a pattern, what is written twice for readers of another version.
const COPIES: [(&str, &str); 3] = [("dlq.", ""), ("", ".snapshot"), ("", ".*")];

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Permits, unless something denies.
    Allow,
    /// Forbids, whatever permits.
    Deny,
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Right {
    /// Storing events.
    Publish {
        /// Of these topics.
        topics: Pattern,
    },
    /// Getting events.
    Subscribe {
        /// Of these topics.
        topics: Pattern,
        /// For these groups. None: for any, and also without one.
        group: Option<GroupGlob>,
    },
    /// Administering.
    Admin {
        /// What.
        area: Area,
    },
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Permits or forbids.
    pub effect: Effect,
    /// What.
    pub right: Right,
}

/// What somebody may do. Deny first: the order of the rules does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// Why a policy is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A scope of ours that is malformed.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// Too many rules.
    #[error("{0} rules are too many; {RULES_MAX} at most")]
    TooMany(usize),
    /// A rule that is no scope.
    #[error("{0:?} is not a scope, such as publish:user.{{sub}}.**")]
    Rule(String),
    /// The subject cannot stand for `{sub}`.
    #[error("the subject cannot be a segment of a topic")]
    Subject,
}

impl Policy {
    /// A policy of these rules.
    pub fn new(rules: Vec<Rule>) -> Result<Self, PolicyError> {
        if rules.len() > RULES_MAX {
            return Err(PolicyError::TooMany(rules.len()));
        }
        Ok(Self { rules })
    }

    /// What these scopes allow; scopes of others are passed over.
    pub fn of_scopes<'a>(scopes: impl IntoIterator<Item = &'a str>) -> Result<Self, PolicyError> {
        let mut rules = Vec::new();
        for scope in scopes {
            rules.extend(scope::read(scope)?);
            if rules.len() > RULES_MAX {
                return Err(PolicyError::TooMany(rules.len()));
            }
        }
        Self::new(rules)
    }

    /// Everything. For servers that were told twice to ask nobody who they are.
    pub fn everything() -> Self {
        let rules = ["publish:**", "subscribe:**", "admin:**"];
        Self::of_scopes(rules).unwrap_or_default()
    }

    /// This policy and further rules.
    pub fn with(&self, further: impl IntoIterator<Item = Rule>) -> Result<Self, PolicyError> {
        Self::new(self.rules.iter().cloned().chain(further).collect())
    }

    /// Whether it allows nothing at all.
    pub fn is_empty(&self) -> bool {
        !self.rules.iter().any(|rule| rule.effect == Effect::Allow)
    }

    /// Whether everything that `other` allows is allowed by this one, too: who has this one may give
    /// the other away.
    pub fn includes(&self, other: &Self) -> bool {
        other.of(Effect::Allow).all(|wanted| match wanted {
            Right::Publish { topics } => {
                self.allows(Action::Publish, Resource::Pattern(topics, None))
            }
            Right::Subscribe { topics, group } => {
                let resource = Resource::Pattern(topics, None);
                let denied =
                    self.of(Effect::Deny).any(|right| right.may_touch(Action::Subscribe, resource));
                !denied
                    && self.of(Effect::Allow).any(|right| match right {
                        Right::Subscribe { topics: has, group: of } => {
                            covers(has, topics) && (of.is_none() || of == group)
                        }
                        _ => false,
                    })
            }
            Right::Admin { area } => {
                let is_of = |right: &Right, within: fn(Area, Area) -> bool| match right {
                    Right::Admin { area: known } => within(*known, *area),
                    _ => false,
                };
                let overlap =
                    |known: Area, area: Area| known.includes(area) || area.includes(known);
                !self.of(Effect::Deny).any(|right| is_of(right, overlap))
                    && self.of(Effect::Allow).any(|right| is_of(right, Area::includes))
            }
        })
    }

    /// The one decision: no rule denies, and one allows.
    pub fn allows(&self, action: Action, resource: Resource<'_>) -> bool {
        if publishes_as_the_system(action, resource) {
            return false;
        }
        let denied = self
            .of(Effect::Deny)
            .any(|right| right.touches(action, resource) || right.touches_copies(action, resource));
        !denied && self.of(Effect::Allow).any(|right| right.grants(action, resource))
    }

    /// Whether it allows the action for some topic of the pattern. Who asks must ask again for
    /// every event.
    pub fn allows_some(&self, action: Action, pattern: &Pattern) -> bool {
        let resource = Resource::Pattern(pattern, None);
        self.of(Effect::Allow).any(|right| right.touches(action, resource))
    }

    fn of(&self, effect: Effect) -> impl Iterator<Item = &Right> {
        self.rules.iter().filter(move |rule| rule.effect == effect).map(|rule| &rule.right)
    }
}

/// Topics of the system's are written by the system, whatever a token says.
fn publishes_as_the_system(action: Action, resource: Resource<'_>) -> bool {
    action == Action::Publish
        && match resource {
            Resource::Topic(topic, _) => topic.is_system(),
            Resource::Pattern(pattern, _) => pattern.as_str().starts_with('$'),
            Resource::Server => false,
        }
}

impl Right {
    /// Whether it is a right to all of the resource.
    fn grants(&self, action: Action, resource: Resource<'_>) -> bool {
        self.applies(action, resource, covers)
    }

    /// Whether it is a right to a part of the resource.
    fn touches(&self, action: Action, resource: Resource<'_>) -> bool {
        self.applies(action, resource, overlap)
    }

    /// Whether the resource holds copies of what it names: who is denied to read the one is denied
    /// the other, and who may not write the one does not get in by way of the other.
    fn touches_copies(&self, action: Action, resource: Resource<'_>) -> bool {
        let (topics, group) = match self {
            Self::Publish { topics } if action == Action::Publish => (topics, None),
            Self::Subscribe { topics, group } if action != Action::Publish => {
                (topics, group.as_ref())
            }
            _ => return false,
        };
        if action.area().is_some() {
            return false;
        }
        let copies = match resource {
            Resource::Topic(topic, _) => originals(topic).iter().any(|name| topics.matches(name)),
            Resource::Pattern(pattern, _) => may_name_copies(pattern, topics),
            Resource::Server => false,
        };
        copies && for_group(group, resource)
    }

    /// Whether it could touch the resource for some group.
    fn may_touch(&self, action: Action, resource: Resource<'_>) -> bool {
        match self {
            Self::Subscribe { topics, .. } if action != Action::Publish => {
                on_topics(topics, resource, overlap)
            }
            _ => self.touches(action, resource),
        }
    }

    fn applies(
        &self,
        action: Action,
        resource: Resource<'_>,
        compare: fn(&Pattern, &Pattern) -> bool,
    ) -> bool {
        match (self, action.area()) {
            (Self::Admin { area }, Some(wanted)) => area.includes(wanted),
            (Self::Publish { topics }, None) if action == Action::Publish => {
                on_topics(topics, resource, compare)
            }
            (Self::Subscribe { topics, group }, None) if action != Action::Publish => {
                on_topics(topics, resource, compare) && for_group(group.as_ref(), resource)
            }
            _ => false,
        }
    }
}

/// The topics that one may hold copies of: copies of copies, too.
fn originals(topic: &Topic) -> Vec<Topic> {
    let (mut found, mut next) = (Vec::new(), vec![topic.as_str()]);
    while let Some(name) = next.pop() {
        let version = name.rsplit_once('.').filter(|(_, last)| is_version(last));
        let names =
            [name.strip_prefix("dlq."), name.strip_suffix(".snapshot"), version.map(|(of, _)| of)];
        next.extend(names.iter().flatten());
        found.extend(names.iter().flatten().filter_map(|name| Topic::new(name).ok()));
    }
    found
}

/// Whether a segment is that of a version, such as `v2`.
fn is_version(segment: &str) -> bool {
    let digits = segment.strip_prefix('v').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a pattern may match topics that hold copies of those of another one.
fn may_name_copies(pattern: &Pattern, of: &Pattern) -> bool {
    let last = pattern.as_str().rsplit('.').next().unwrap_or_default();
    COPIES.iter().any(|(before, after)| {
        // What ends otherwise is no version of anything.
        if *after == ".*" && !is_version(last) && !last.contains('*') {
            return false;
        }
        // A name that is too long for a pattern could still be one of those that are asked for.
        let named = |name: &str| Pattern::new(&format!("{before}{name}{after}"));
        let copies = named(of.as_str()).or_else(|_| named("**"));
        copies.is_ok_and(|copies| overlap(&copies, pattern))
    })
}

fn on_topics(
    topics: &Pattern,
    resource: Resource<'_>,
    compare: fn(&Pattern, &Pattern) -> bool,
) -> bool {
    match resource {
        Resource::Topic(topic, _) => topics.matches(topic),
        Resource::Pattern(pattern, _) => compare(topics, pattern),
        Resource::Server => false,
    }
}

fn for_group(wanted: Option<&GroupGlob>, resource: Resource<'_>) -> bool {
    let group = match resource {
        Resource::Topic(_, group) | Resource::Pattern(_, group) => group,
        Resource::Server => None,
    };
    match (wanted, group) {
        (None, _) => true,
        (Some(wanted), Some(group)) => wanted.matches(group),
        (Some(_), None) => false,
    }
}

/// A rule of the configuration, in which `{sub}` stands for who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleTemplate {
    /// Permits or forbids.
    pub effect: Effect,
    /// A scope, with `{sub}` where a segment or a group may stand.
    pub scope: String,
}

impl RuleTemplate {
    /// Reads a scope, with `!` before it to forbid. Checked with a plain name in the place of
    /// `{sub}`.
    pub fn read(text: &str) -> Result<Self, PolicyError> {
        let template = match text.strip_prefix(scope::DENY) {
            Some(scope) => Self { effect: Effect::Deny, scope: scope.to_owned() },
            None => Self { effect: Effect::Allow, scope: text.to_owned() },
        };
        template.rule_for("somebody")?;
        Ok(template)
    }

    /// The rule for one subject. A subject that is not a plain name is refused rather than
    /// escaped: with a dot or a star in it, it would reach into the topics of others.
    pub fn rule_for(&self, subject: &str) -> Result<Rule, PolicyError> {
        let text = if self.scope.contains("{sub}") {
            let plain = Topic::new(subject).is_ok_and(|topic| topic.segments().count() == 1);
            if !plain || GroupName::new(subject).is_err() {
                return Err(PolicyError::Subject);
            }
            self.scope.replace("{sub}", subject)
        } else {
            self.scope.clone()
        };
        // A scope that forbids cannot be turned into one that allows.
        let rule = scope::read(&text)?.filter(|rule| rule.effect == Effect::Allow);
        let rule = rule.ok_or_else(|| PolicyError::Rule(self.scope.chars().take(64).collect()))?;
        Ok(Rule { effect: self.effect, right: rule.right })
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
