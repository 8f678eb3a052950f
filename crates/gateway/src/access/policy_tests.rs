use super::*;
use proptest::prelude::*;

fn topic(name: &str) -> Topic {
    Topic::stored(name).unwrap()
}

fn group(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

fn rule(effect: Effect, scope: &str) -> Rule {
    let read = scope::read(scope).unwrap().unwrap();
    Rule { effect, right: read.right }
}

fn policy(allow: &[&str], deny: &[&str]) -> Policy {
    let allow = allow.iter().map(|scope| rule(Effect::Allow, scope));
    let deny = deny.iter().map(|scope| rule(Effect::Deny, scope));
    Policy::new(allow.chain(deny).collect()).unwrap()
}

/// Pitfall 66: no scopes meant every right.
#[test]
fn nothing_is_allowed_by_default() {
    let empty = Policy::default();
    assert!(empty.is_empty());
    for &action in Action::ALL {
        assert!(!empty.allows(action, Resource::Server));
        assert!(!empty.allows(action, Resource::Topic(&topic("a"), None)));
    }
    assert!(policy(&[], &["publish:a"]).is_empty());
}

/// Pitfall 68: the first rule that matched won, and a rule for a group hid those after it.
#[test]
fn deny_wins_in_any_order() {
    let allowed = policy(&["subscribe:**@ops", "subscribe:a.**"], &["subscribe:a.secret.**"]);
    let may = |name: &str, g: &str| {
        allowed.allows(Action::Subscribe, Resource::Topic(&topic(name), Some(&group(g))))
    };
    assert!(may("b", "ops"));
    assert!(!may("b", "dev"));
    assert!(may("a.x", "dev"));
    assert!(!may("a.secret", "ops"));
    assert!(!may("a.secret.b", "dev"));
}

#[test]
fn a_right_for_one_group_is_not_one_to_read() {
    let grouped = policy(&["subscribe:a@g"], &[]);
    let a = topic("a");
    assert!(grouped.allows(Action::Subscribe, Resource::Topic(&a, Some(&group("g")))));
    assert!(grouped.allows(Action::Ack, Resource::Topic(&a, Some(&group("g")))));
    assert!(!grouped.allows(Action::Read, Resource::Topic(&a, None)));
    assert!(!grouped.allows(Action::Publish, Resource::Topic(&a, None)));
}

#[test]
fn patterns_are_allowed_whole_or_not() {
    let some = policy(&["subscribe:a.**"], &["subscribe:a.secret.**"]);
    let may =
        |text| some.allows(Action::Read, Resource::Pattern(&Pattern::new(text).unwrap(), None));
    assert!(may("a.open.*"));
    assert!(!may("a.*"));
    assert!(!may("**"));
    assert!(some.allows_some(Action::Read, &Pattern::new("**").unwrap()));
    assert!(!some.allows_some(Action::Read, &Pattern::new("b.**").unwrap()));
}

/// NATS 2026-26 (GHSA-7qmq): copies of what was denied could be read. Dead letters are copies.
#[test]
fn who_is_denied_a_topic_is_denied_its_dead_letters() {
    let most = policy(&["subscribe:**", "publish:**"], &["subscribe:secret.**"]);
    let may = |name: &str| most.allows(Action::Read, Resource::Topic(&topic(name), None));
    assert!(may("open.a") && may("dlq.open.a") && may("dlq.secretive"));
    assert!(!may("secret.a") && !may("dlq.secret.a") && !may("dlq.secret"));
    let all_of = |text| {
        let pattern = Pattern::new(text).unwrap();
        most.allows(Action::Subscribe, Resource::Pattern(&pattern, Some(&group("g"))))
    };
    assert!(all_of("dlq.open.**"));
    assert!(!all_of("dlq.**") && !all_of("dlq.*.a") && !all_of("dlq.secret.a"));
    // A deny for one group is one for that group only, and none of publishing.
    let grouped = policy(&["subscribe:**"], &["subscribe:secret@g"]);
    let dead = topic("dlq.secret");
    assert!(!grouped.allows(Action::Subscribe, Resource::Topic(&dead, Some(&group("g")))));
    assert!(grouped.allows(Action::Subscribe, Resource::Topic(&dead, Some(&group("h")))));
    assert!(most.allows(Action::Publish, Resource::Topic(&topic("secret"), None)));
}

/// Snapshots are copies, too; and what is replayed from dead letters gets into the topic.
#[test]
fn who_is_denied_a_topic_is_denied_its_snapshot_and_its_back_door() {
    let most = policy(&["subscribe:**", "publish:**"], &["subscribe:card", "publish:card"]);
    let may = |action, name: &str| most.allows(action, Resource::Topic(&topic(name), None));
    for action in [Action::Read, Action::Publish] {
        for denied in
            ["card", "card.snapshot", "dlq.card", "card.v2", "dlq.card.v2", "card.v10.snapshot"]
        {
            assert!(!may(action, denied), "{denied}");
        }
        let others = ["cards", "cards.snapshot", "dlq.cards", "card.paid", "snapshot"];
        for allowed in others.into_iter().chain(["cards.v2", "card.v", "card.v2x", "card.paid.v2"])
        {
            assert!(may(action, allowed), "{allowed}");
        }
        let pattern = |name: &str| {
            let pattern = Pattern::new(name).unwrap();
            most.allows(action, Resource::Pattern(&pattern, None))
        };
        assert!(!pattern("card.v2") && !pattern("card.*") && !pattern("*.v2"));
        assert!(pattern("card.paid") && pattern("cards.*") && pattern("card.paid.*"));
    }
}

#[test]
fn nobody_writes_as_the_system() {
    let all = policy(&["publish:$**", "publish:**", "subscribe:$**"], &[]);
    assert!(!all.allows(Action::Publish, Resource::Topic(&topic("$groups"), None)));
    assert!(!Policy::everything().allows(Action::Read, Resource::Topic(&topic("$groups"), None)));
    assert!(all.allows(Action::Read, Resource::Topic(&topic("$groups"), None)));
}

#[test]
fn areas() {
    let ops = policy(&["admin:ops"], &[]);
    assert!(ops.allows(Action::OpsRead, Resource::Server));
    assert!(ops.allows(Action::OpsAdmin, Resource::Server));
    assert!(!ops.allows(Action::DlqRead, Resource::Server));
    let reader = policy(&["admin:ops.read"], &[]);
    assert!(reader.allows(Action::OpsRead, Resource::Server));
    assert!(!reader.allows(Action::OpsAdmin, Resource::Server));
    let most = policy(&["admin:**"], &["admin:dlq"]);
    assert!(most.allows(Action::CursorSet, Resource::Server));
    assert!(!most.allows(Action::DlqReplay, Resource::Server));
    assert!(!most.allows(Action::Publish, Resource::Topic(&topic("a"), None)));
}

/// RabbitMQ CVE-2026-44838: a name chosen by the client became a part of a rule.
#[test]
fn subjects_that_would_reach_further_are_refused() {
    let template = RuleTemplate { effect: Effect::Allow, scope: "publish:user.{sub}.**".into() };
    let own = template.rule_for("ann-7").unwrap();
    assert_eq!(own, rule(Effect::Allow, "publish:user.ann-7.**"));
    for subject in ["", "a.b", "*", "**", "a@b", "A", "$a", "{sub}", "ä", "a\n"] {
        assert_eq!(template.rule_for(subject), Err(PolicyError::Subject), "{subject:?}");
    }
    let deny = RuleTemplate { effect: Effect::Deny, scope: "subscribe:a".into() };
    assert_eq!(deny.rule_for("anything *"), Ok(rule(Effect::Deny, "subscribe:a")));
}

#[test]
fn rules_are_read_as_scopes() {
    let deny = RuleTemplate::read("!subscribe:user.{sub}.**").unwrap();
    assert_eq!(deny.rule_for("ann"), Ok(rule(Effect::Deny, "subscribe:user.ann.**")));
    let allow = RuleTemplate::read("publish:user.{sub}.**").unwrap();
    assert_eq!(allow.rule_for("ann"), Ok(rule(Effect::Allow, "publish:user.ann.**")));
    for bad in ["", "openid", "!openid", "publish", "!!publish:a", "publish:{user}.a"] {
        assert!(RuleTemplate::read(bad).is_err(), "{bad}");
    }
    let hidden = RuleTemplate { effect: Effect::Allow, scope: "!publish:a".into() };
    assert!(hidden.rule_for("ann").is_err());
    let scoped = Policy::of_scopes(["subscribe:**", "!subscribe:secret.**"]).unwrap();
    assert!(scoped.allows(Action::Read, Resource::Topic(&topic("a"), None)));
    assert!(!scoped.allows(Action::Read, Resource::Topic(&topic("secret.a"), None)));
}

#[test]
fn rules_are_bounded() {
    let many = vec!["publish:a"; RULES_MAX + 1];
    assert!(matches!(Policy::of_scopes(many), Err(PolicyError::TooMany(_))));
}

fn scopes() -> impl Strategy<Value = String> {
    let patterns = proptest::collection::vec(prop_oneof!["a", "b", "\\*", "\\*\\*"], 1..4)
        .prop_map(|parts| parts.join("."));
    let kinds = prop_oneof!["publish:", "subscribe:"];
    let groups = prop_oneof![Just(""), Just("@g"), Just("@*")];
    prop_oneof![
        8 => (kinds, patterns, groups).prop_map(|(kind, pattern, group)| {
            let group = if kind == "publish:" { "" } else { group };
            format!("{kind}{pattern}{group}")
        }),
        1 => prop_oneof!["admin:ops", "admin:dlq", "admin:\\*\\*"],
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// NATS GHSA-jx8g: one kind of deny rule undid another. Adding a deny never widens; adding an
    /// allow never narrows; and what the denied rule names is gone.
    #[test]
    fn a_deny_never_widens(
        allow in proptest::collection::vec(scopes(), 0..5),
        deny in proptest::collection::vec(scopes(), 0..4),
        further in scopes(),
        names in proptest::collection::vec(prop_oneof!["a", "b"], 1..4),
        grouped in any::<bool>(),
    ) {
        let allow: Vec<&str> = allow.iter().map(String::as_str).collect();
        let deny: Vec<&str> = deny.iter().map(String::as_str).collect();
        let before = policy(&allow, &deny);
        let narrower = before.with([rule(Effect::Deny, &further)]).unwrap();
        let wider = before.with([rule(Effect::Allow, &further)]).unwrap();
        let name = topic(&names.join("."));
        let g = group("g");
        let g = grouped.then_some(&g);
        let wide = Pattern::new(&format!("{}.**", names.join("."))).unwrap();
        for resource in [Resource::Topic(&name, g), Resource::Pattern(&wide, g), Resource::Server] {
            for &action in Action::ALL {
                let was = before.allows(action, resource);
                prop_assert!(was || !narrower.allows(action, resource));
                prop_assert!(!was || wider.allows(action, resource));
                let alone = Policy::new(vec![rule(Effect::Allow, &further)]).unwrap();
                if alone.allows(action, resource) {
                    prop_assert!(!narrower.allows(action, resource));
                }
            }
        }
    }

    /// What is allowed for a pattern is allowed for each of its topics.
    #[test]
    fn a_pattern_promises_its_topics(
        allow in proptest::collection::vec(scopes(), 0..5),
        deny in proptest::collection::vec(scopes(), 0..3),
        parts in proptest::collection::vec(prop_oneof!["a", "b", "\\*", "\\*\\*"], 1..4),
        names in proptest::collection::vec(prop_oneof!["a", "b", "c"], 1..5),
    ) {
        let allow: Vec<&str> = allow.iter().map(String::as_str).collect();
        let deny: Vec<&str> = deny.iter().map(String::as_str).collect();
        let policy = policy(&allow, &deny);
        let pattern = Pattern::new(&parts.join(".")).unwrap();
        let name = topic(&names.join("."));
        for action in [Action::Publish, Action::Subscribe, Action::Read] {
            let one = policy.allows(action, Resource::Topic(&name, None));
            if pattern.matches(&name) && policy.allows(action, Resource::Pattern(&pattern, None)) {
                prop_assert!(one);
            }
            if pattern.matches(&name) && one {
                prop_assert!(policy.allows_some(action, &pattern));
            }
        }
    }
}

#[test]
fn nobody_can_give_away_more_than_he_has() {
    let scopes = ["publish:orders.*", "subscribe:orders.**@shop", "admin:ops"];
    let has = policy(&scopes, &[]);
    for (wanted, is_within) in [
        ("publish:orders.placed", true),
        ("publish:orders.*", true),
        ("publish:**", false),
        ("subscribe:orders.placed@shop", true),
        ("subscribe:orders.placed@other", false),
        ("subscribe:orders.placed", false),
        ("admin:ops.read", true),
        ("admin:ops", true),
        ("admin:topics", false),
        ("admin:**", false),
    ] {
        assert_eq!(has.includes(&policy(&[wanted], &[])), is_within, "{wanted}");
    }
    assert!(Policy::everything().includes(&has));
    assert!(!has.includes(&Policy::everything()));
    // What is forbidden to somebody is not to be had by a detour.
    let less = policy(&scopes, &["publish:orders.secret"]);
    assert!(!less.includes(&policy(&["publish:orders.*"], &[])));
    assert!(less.includes(&policy(&["publish:orders.placed"], &[])));
    let less = policy(&scopes, &["admin:ops.read"]);
    assert!(!less.includes(&policy(&["admin:ops"], &[])));
}
