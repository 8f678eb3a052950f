//! What has to happen so that a bus is as a manifest says. Deciding only: somebody else does it.

use std::collections::BTreeMap;

use promethean_event::{GroupName, Topic};
use serde::Serialize;
use serde_json::{Map, Value};

use super::document::{Document, From};
use crate::output;
use crate::rules::{Difference, Rules};

/// What a bus has.
#[derive(Debug, Default)]
pub(crate) struct Existing {
    pub(crate) topics: BTreeMap<Topic, (Rules, u64)>,
    /// Groups with their settings, and how many members they have.
    pub(crate) groups: BTreeMap<GroupName, (Map<String, Value>, u64)>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "step")]
pub(crate) enum Step {
    AddTopic {
        topic: Topic,
        rules: Rules,
    },
    SetTopic {
        topic: Topic,
        rules: Rules,
        differences: Vec<Difference>,
    },
    /// The number of partitions cannot be changed.
    CannotSetTopic {
        topic: Topic,
        from: u32,
        to: u32,
    },
    RemoveTopic {
        topic: Topic,
        events: u64,
    },
    AddGroup {
        group: GroupName,
        settings: Map<String, Value>,
        from: From,
    },
    SetGroup {
        group: GroupName,
        settings: Map<String, Value>,
        differences: Vec<String>,
        members: u64,
    },
    RemoveGroup {
        group: GroupName,
    },
}

impl Step {
    /// Whether something is gone afterwards.
    pub(crate) fn destroys(&self) -> bool {
        match self {
            Self::RemoveTopic { .. } | Self::RemoveGroup { .. } => true,
            Self::SetTopic { differences, .. } => differences.iter().any(|one| one.destroys),
            Self::AddTopic { .. }
            | Self::CannotSetTopic { .. }
            | Self::AddGroup { .. }
            | Self::SetGroup { .. } => false,
        }
    }

    /// Whether it cannot be done at all, or not now.
    pub(crate) fn obstacle(&self) -> Option<String> {
        match self {
            Self::CannotSetTopic { topic, from, to } => Some(format!(
                "topic {topic} has {} and keeps that: keys would change their place. \
                 For {to}, make another topic and copy: prom export {topic} | prom import - --into …",
                output::count(*from as usize, "partition", "partitions")
            )),
            Self::SetGroup { group, members, .. } if *members > 0 => Some(format!(
                "group {group} has members, which agree on its settings: stop them first"
            )),
            _ => None,
        }
    }
}

/// What has to happen, in the order in which it has to.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
}

impl Plan {
    /// Compares; what the manifest does not name is left alone unless it is to be `pruned`.
    pub(crate) fn of(document: &Document, existing: &Existing, pruned: bool) -> Self {
        let mut steps = Vec::new();
        for (name, table) in &document.topic {
            let Ok(topic) = Topic::new(name) else { continue };
            let rules = table.rules(&document.defaults.topic);
            steps.extend(topic_step(topic, rules, existing));
        }
        for (name, table) in &document.group {
            let Ok(group) = GroupName::new(name) else { continue };
            let from = table.from.unwrap_or(From::Latest);
            steps.extend(group_step(group, table.settings(), from, existing));
        }
        if pruned {
            let names = |name: &GroupName| document.group.contains_key(name.as_str());
            let groups = existing.groups.keys().filter(|group| !names(group));
            steps.extend(groups.map(|group| Step::RemoveGroup { group: group.clone() }));
            // The system makes topics of dead letters by itself.
            let named = |topic: &Topic| {
                let name = topic.as_str();
                document.topic.contains_key(name) || name.starts_with("dlq.")
            };
            let topics = existing.topics.iter().filter(|(topic, _)| !named(topic));
            steps.extend(topics.map(|(topic, (_, events))| Step::RemoveTopic {
                topic: topic.clone(),
                events: *events,
            }));
        }
        Self { steps }
    }

    pub(crate) fn destroys(&self) -> bool {
        self.steps.iter().any(Step::destroys)
    }
}

fn topic_step(topic: Topic, rules: Rules, existing: &Existing) -> Option<Step> {
    let Some((there, _)) = existing.topics.get(&topic) else {
        return Some(Step::AddTopic { topic, rules });
    };
    if there.partitions != rules.partitions {
        return Some(Step::CannotSetTopic { topic, from: there.partitions, to: rules.partitions });
    }
    let differences = there.differences(&rules);
    (!differences.is_empty()).then_some(Step::SetTopic { topic, rules, differences })
}

fn group_step(
    group: GroupName,
    wanted: Map<String, Value>,
    from: From,
    existing: &Existing,
) -> Option<Step> {
    let Some((there, members)) = existing.groups.get(&group) else {
        return Some(Step::AddGroup { group, settings: wanted, from });
    };
    // What the manifest does not say stays as it is.
    let differences: Vec<String> = wanted
        .iter()
        .filter(|(name, value)| there.get(*name) != Some(value))
        .map(|(name, value)| {
            let old = there.get(name).map_or_else(|| "-".to_owned(), Value::to_string);
            format!("{name}: {old} -> {value}")
        })
        .collect();
    if differences.is_empty() {
        return None;
    }
    let mut settings = there.clone();
    settings.extend(wanted);
    Some(Step::SetGroup { group, settings, differences, members: *members })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn document(text: &str) -> Document {
        super::super::reading::read(Path::new("prom.toml"), text, [].into_iter()).unwrap()
    }

    fn existing(topics: &[(&str, Rules)]) -> Existing {
        let topics =
            topics.iter().map(|(name, rules)| (Topic::new(name).unwrap(), (rules.clone(), 5)));
        Existing { topics: topics.collect(), groups: BTreeMap::new() }
    }

    #[test]
    fn what_is_there_already_is_no_step() {
        let wanted = document(
            "[defaults.topic]\nretention = \"7d\"\n[topic.a]\n[topic.b]\nretention = \"1d\"",
        );
        let plan = Plan::of(&wanted, &existing(&[]), false);
        let added: Vec<Option<u64>> = plan
            .steps
            .iter()
            .map(|step| match step {
                Step::AddTopic { rules, .. } => rules.retention_ms,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(added, [Some(604_800_000), Some(86_400_000)]);
        let week = Rules { retention_ms: Some(604_800_000), ..Rules::default() };
        let day = Rules { retention_ms: Some(86_400_000), ..Rules::default() };
        let there = existing(&[("a", week.clone()), ("b", day), ("c", week.clone())]);
        assert!(Plan::of(&wanted, &there, false).steps.is_empty(), "c is left alone");
        let pruned = Plan::of(&wanted, &there, true);
        assert!(
            matches!(&pruned.steps[..], [Step::RemoveTopic { topic, .. }] if topic.as_str() == "c")
        );
        let longer = existing(&[("a", week.clone()), ("b", week)]);
        let plan = Plan::of(&wanted, &longer, false);
        assert!(plan.destroys(), "a day keeps less than a week");
    }

    #[test]
    fn partitions_stay() {
        let wanted = document("[topic.a]\npartitions = 8");
        let plan = Plan::of(&wanted, &existing(&[("a", Rules::default())]), false);
        assert!(plan.steps[0].obstacle().unwrap().contains("keys would change their place"));
    }

    #[test]
    fn groups_are_compared_by_what_is_said() {
        let wanted = document("[group.g]\ntopics = [\"a\"]\nmax_attempts = 3");
        let group = GroupName::new("g").unwrap();
        let mut there = Existing::default();
        assert!(matches!(Plan::of(&wanted, &there, false).steps[0], Step::AddGroup { .. }));
        let settings = serde_json::json!({ "topics": ["a"], "max_attempts": 3, "hold": true });
        there.groups.insert(group.clone(), (settings.as_object().unwrap().clone(), 0));
        assert!(Plan::of(&wanted, &there, false).steps.is_empty());
        let settings = serde_json::json!({ "topics": ["a"], "max_attempts": 5, "hold": true });
        there.groups.insert(group, (settings.as_object().unwrap().clone(), 2));
        let plan = Plan::of(&wanted, &there, false);
        assert!(plan.steps[0].obstacle().is_some(), "it has members");
    }
}
