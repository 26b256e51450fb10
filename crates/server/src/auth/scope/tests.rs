use prombus_proto::Group;
use proptest::prelude::*;

use super::*;
use crate::auth::pattern::NamePattern;

fn scopes(text: &str) -> Scopes {
    Scopes::new(&text.into()).unwrap()
}

fn topic(name: &str) -> Topic {
    Topic::new(name).unwrap()
}

fn group(name: &str) -> Group {
    Group::new(name).unwrap()
}

/// Checks `rules` on `read dlq.a`, `consume a/g`, `publish a`, `manage a` or `admin`.
#[track_caller]
fn decides(rules: &str, action: &str, expected: bool) {
    let (kind, name) = action.split_once(' ').unwrap_or((action, "unused"));
    let (name, member) = name.split_once('/').unwrap_or((name, "unused"));
    let (topic, group) = (topic(name), group(member));
    let action = match kind {
        "read" => Action::Read(&topic),
        "consume" => Action::Consume { topic: &topic, group: &group },
        "publish" => Action::Publish(&topic),
        "manage" => Action::Manage(&topic),
        _ => Action::Admin,
    };
    assert_eq!(scopes(rules).allow(action), expected, "{rules:?} on {action:?}");
}

const ACTIONS: [&str; 5] = ["read a.b", "consume a.b/g", "publish a.b", "manage a.b", "admin"];

#[test]
fn each_scope_allows_its_actions_and_no_others() {
    for (rules, allowed) in [
        ("", &[][..]),
        ("read:a.*", &["read a.b"]),
        ("consume:a.*", &["consume a.b/g"]),
        ("consume:a.*/g", &["consume a.b/g"]),
        ("consume:a.*/h", &[]),
        ("publish:a.*", &["publish a.b"]),
        ("manage:a.*", &["manage a.b"]),
        ("subscribe:a.*", &["read a.b", "consume a.b/g"]),
        ("read:b publish:b manage:b consume:b/g subscribe:b", &[]),
        ("admin", &ACTIONS),
    ] {
        for action in ACTIONS {
            decides(rules, action, allowed.contains(&action));
        }
    }
}

#[test]
fn the_first_rule_that_covers_an_action_decides() {
    for (rules, action, allowed) in [
        ("!publish:secret.** publish:**", "publish a.b", true),
        ("!publish:secret.** publish:**", "publish secret.x", false),
        ("publish:** !publish:secret.**", "publish secret.x", true),
        ("!publish:secret.**", "publish a.b", false),
        ("!publish:** subscribe:**", "read secret.x", true),
        ("publish:secret.x !publish:secret.** publish:**", "publish secret.x", true),
        ("!read:secret.** subscribe:**", "read secret.x", false),
        ("!read:secret.** subscribe:**", "consume secret.x/g", true),
        ("!subscribe:secret.** read:** consume:**", "read secret.x", false),
        ("!subscribe:secret.** read:** consume:**", "consume secret.x/g", false),
        ("!admin admin", "admin", false),
        ("!admin admin", "publish a", true),
        ("!publish:secret.** !manage:** admin", "publish secret.x", false),
        ("!publish:secret.** !manage:** admin", "manage a", false),
        ("!publish:secret.** !manage:** admin", "read secret.x", true),
    ] {
        decides(rules, action, allowed);
    }
}

#[test]
fn a_consumer_may_be_limited_to_its_groups() {
    for (rules, action, allowed) in [
        ("consume:orders.*/billing-a", "consume orders.new/billing-a", true),
        ("consume:orders.*/billing-a", "consume orders.new/billing-b", false),
        ("consume:orders.*/billing-a", "consume invoices/billing-a", false),
        ("consume:orders.*/billing-*", "consume orders.new/billing-eu", true),
        ("consume:orders.*/billing-*", "consume orders.new/billing", false),
        ("consume:orders.*/billing.*", "consume orders.new/billing.eu", true),
        ("consume:orders.*/billing.*", "consume orders.new/mail.eu", false),
        ("consume:**/**", "consume orders.new/any.group", true),
        ("!consume:**/ops.** consume:**", "consume orders/ops.x", false),
        ("!consume:**/ops.** consume:**", "consume orders/mail", true),
        ("!consume:**/ops.** subscribe:**", "consume orders/ops", false),
        ("consume:orders/billing", "read orders", false),
    ] {
        decides(rules, action, allowed);
    }
}

#[test]
fn a_rule_covers_dead_letters_and_snapshots_unless_another_rule_names_them() {
    for (rules, action, allowed) in [
        ("read:orders.*", "read dlq.orders.new", true),
        ("read:orders.*", "read orders.new.snapshot", true),
        ("read:orders.*", "read dlq.orders.new.snapshot", true),
        ("read:orders.*", "read dlq.dlq.orders.new", true),
        ("read:orders.*", "read dlq.invoices", false),
        ("read:orders.*", "read dlq", false),
        ("publish:orders", "publish dlq.orders", true),
        ("manage:orders", "manage orders.snapshot", true),
        ("consume:orders/g", "consume dlq.orders/g", true),
        ("consume:orders/g", "consume dlq.orders/h", false),
        // A denial covers them too, although `**` matches them.
        ("!read:secret.** read:**", "read dlq.secret.x", false),
        ("!read:secret.** read:**", "read dlq.dlq.secret.x", false),
        ("!read:secret.** read:**", "read dlq.other.x", true),
        ("!read:secret read:**", "read secret.snapshot", false),
        ("!read:secret read:**", "read dlq.secret.snapshot", false),
        ("!read:secret.snapshot read:**", "read dlq.secret.snapshot", false),
        ("!read:secret.snapshot read:**", "read secret", true),
        ("!subscribe:secret.** subscribe:**", "consume dlq.secret.x/g", false),
        ("!publish:secret.** admin", "publish dlq.secret.x", false),
        ("!consume:secret.**/ops subscribe:**", "consume dlq.secret.x/ops", false),
        ("!consume:secret.**/ops subscribe:**", "consume dlq.secret.x/mail", true),
        // Another rule names them, wherever it stands.
        ("!read:secret.** read:dlq.**", "read dlq.secret.x", true),
        ("read:orders.* !read:dlq.**", "read dlq.orders.new", false),
        ("read:orders !read:*.snapshot", "read orders.snapshot", false),
        ("read:orders !read:dlq.orders", "read dlq.dlq.orders", false),
        ("read:orders !read:dlq.orders", "read dlq.orders.snapshot", true),
        // A rule for other actions or groups does not name them.
        ("!read:secret.** read:** publish:dlq.**", "read dlq.secret.x", false),
        (
            "!consume:secret.** consume:dlq.secret.x/ops consume:**",
            "consume dlq.secret.x/mail",
            false,
        ),
        (
            "!consume:secret.** consume:dlq.secret.x/ops consume:**",
            "consume dlq.secret.x/ops",
            true,
        ),
        // An order of its own is kept: the first rule covers everything by name.
        ("read:** !read:secret.**", "read dlq.secret.x", true),
    ] {
        decides(rules, action, allowed);
    }
}

#[test]
fn a_long_chain_of_derivations_is_cheap() {
    let rules = ["!read:secret.**", "!read:**.x.**.y.**", "read:dlq.**.x.**", "read:**"].join(" ");
    let name = format!("{}secret{}", "dlq.".repeat(24), ".snapshot".repeat(10));
    // Each way to strip the name would be tried if they were not told apart: 131 million.
    decides(&rules, &format!("read {name}"), false);
}

#[test]
fn knows_whether_a_topic_may_be_consumed_at_all() {
    for (rules, expected) in [
        ("", false),
        ("consume:a/g", true),
        ("consume:a", true),
        ("subscribe:a", true),
        ("admin", true),
        ("read:a publish:a manage:a", false),
        ("consume:b/g", false),
        ("!consume:a subscribe:a", false),
        ("!consume:a/g consume:a", true),
        ("!subscribe:** consume:a/g", false),
    ] {
        assert_eq!(scopes(rules).allow_some_group(&topic("a")), expected, "{rules:?}");
    }
}

#[test]
fn unrestricted_allows_every_action() {
    let (topic, group) = (topic("dlq.a"), group("g"));
    let consume = Action::Consume { topic: &topic, group: &group };
    for action in [
        Action::Read(&topic),
        consume,
        Action::Publish(&topic),
        Action::Manage(&topic),
        Action::Admin,
    ] {
        assert!(Scopes::unrestricted().allow(action), "{action:?}");
    }
    assert_eq!(Scopes::unrestricted(), scopes("admin"));
}

#[test]
fn rejects_invalid_rules() {
    for bad in
        ["publish", "Publish:a", "write:a", "admin:a", "!", "!!admin", "admins", "*", "", "consume"]
    {
        let error = bad.parse::<Rule>().unwrap_err();
        assert_eq!(error, InvalidRule::Unknown(bad.to_owned()));
        assert!(error.to_string().contains("`publish:TOPIC`"), "{error}");
    }
    for bad in [
        "publish:",
        "subscribe:A",
        "!publish:a..b",
        "publish:a b",
        "publish:a:b",
        "read:a/g",
        "subscribe:a/g",
        "consume:a/",
        "consume:/g",
        "consume:a/g/h",
        "consume:a/G",
        "consume:a/b*g",
    ] {
        let error = bad.parse::<Rule>().unwrap_err();
        assert!(matches!(&error, InvalidRule::Pattern { rule, .. } if rule == bad), "{error}");
    }
}

#[test]
fn ignores_scopes_of_other_services_but_not_misspelled_rules() {
    let foreign = "openid email https://x/scope publish:a admin write:b Publish:c publish";
    assert_eq!(Scopes::from_claim(&foreign.into()), Ok(scopes("publish:a admin")));
    let ours = "read:a consume:a/g manage:a !subscribe:a";
    assert_eq!(Scopes::from_claim(&ours.into()), Ok(scopes(ours)));
    for bad in [
        "publish:**  !publsh:secret",
        "!publish:Secret",
        "!read",
        "publish:",
        "consume:a/",
        "manage:A",
    ] {
        assert!(Scopes::from_claim(&bad.into()).is_err(), "{bad}");
    }
}

#[test]
fn deserializes_from_a_list_or_a_string() {
    let expected = ScopeList::from(vec!["publish:a".to_owned(), "admin".to_owned()]);
    for json in [r#"["publish:a","admin"]"#, r#"" publish:a  admin""#] {
        assert_eq!(serde_json::from_str::<ScopeList>(json).unwrap(), expected, "{json}");
    }
    for json in ["1", "[1]", "{}", "null"] {
        assert!(serde_json::from_str::<ScopeList>(json).is_err(), "{json}");
    }
}

/// A rule, taken apart: whether it denies, the pattern of topics, the pattern of groups.
type Consume = (bool, String, Option<String>);

fn patterns(segments: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(segments), 1..4).prop_map(|s| s.join("."))
}

fn consume_rules() -> impl Strategy<Value = Vec<Consume>> {
    let topics = patterns(&["a", "dlq", "snapshot", "*", "**"]);
    let groups =
        prop::option::of(prop::sample::select(vec!["g", "h", "*"]).prop_map(str::to_owned));
    prop::collection::vec((any::<bool>(), topics, groups), 0..5)
}

fn covers(pattern: &str, name: &str) -> bool {
    NamePattern::new(pattern).unwrap().matches(name)
}

/// The definition taken literally.
fn rule_covers(rules: &[Consume], (_, pattern, _): &Consume, topic: &str) -> bool {
    let names = |marks: fn(&str) -> bool| {
        rules.iter().any(|(_, pattern, _)| marks(pattern) && covers(pattern, topic))
    };
    let through = |origin: Option<&str>, marks: fn(&str) -> bool| {
        let rule = (false, pattern.clone(), None);
        origin.is_some_and(|origin| !names(marks) && rule_covers(rules, &rule, origin))
    };
    covers(pattern, topic)
        || through(topic.strip_prefix("dlq."), |p| p.split('.').next() == Some("dlq"))
        || through(topic.strip_suffix(".snapshot"), |p| {
            p.split('.').next_back() == Some("snapshot")
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn agrees_with_the_definition(
        rules in consume_rules(),
        name in patterns(&["a", "dlq", "snapshot"]),
        member in prop::sample::select(vec!["g", "h"]),
    ) {
        let text: Vec<_> = rules
            .iter()
            .map(|(denies, topics, groups)| {
                let denies = if *denies { "!" } else { "" };
                let groups = groups.as_ref().map(|groups| format!("/{groups}")).unwrap_or_default();
                format!("{denies}consume:{topics}{groups}")
            })
            .collect();
        let relevant: Vec<_> = rules
            .into_iter()
            .filter(|(_, _, groups)| groups.as_ref().is_none_or(|groups| covers(groups, member)))
            .collect();
        let first = relevant.iter().find(|rule| rule_covers(&relevant, rule, &name));
        let expected = first.is_some_and(|(denies, _, _)| !denies);
        let (topic, group) = (topic(&name), group(member));
        let allowed =
            scopes(&text.join(" ")).allow(Action::Consume { topic: &topic, group: &group });
        prop_assert_eq!(allowed, expected, "{:?} on {}", text, name);
    }

    /// Without rules that name them, whoever may not touch a topic may not touch what is derived from it.
    #[test]
    fn a_denied_topic_leaves_no_way_around(
        denied in patterns(&["a", "b", "*"]),
        name in patterns(&["a", "b"]),
        derive in prop::collection::vec(any::<bool>(), 0..4),
    ) {
        let rules = scopes(&format!("!subscribe:{denied} subscribe:** publish:**"));
        let derived = derive.into_iter().fold(name.clone(), |name, dead_letters| {
            if dead_letters { format!("dlq.{name}") } else { format!("{name}.snapshot") }
        });
        if !rules.allow(Action::Read(&topic(&name))) {
            prop_assert!(!rules.allow(Action::Read(&topic(&derived))), "{} of {}", derived, denied);
        }
    }

    #[test]
    fn any_text_is_a_rule_or_an_error(text in "\\PC{0,30}|!?(read|consume|admin):?[a-c.*/]{0,9}") {
        let _ = text.parse::<Rule>();
    }
}
