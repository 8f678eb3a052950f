//! What the registry says of a new version, in words.

use serde_json::Value;

/// Whether nothing speaks against it.
pub(crate) fn is_good(plan: &Value) -> bool {
    plan["objections"].as_array().is_none_or(Vec::is_empty)
}

pub(crate) fn plan_text(plan: &Value) -> String {
    let mut out = format!("{} of {}", version(plan), text(&plan["topic"]));
    if plan["exists"] == true {
        out.push_str(" is registered already\n");
        return out;
    }
    out.push_str(&format!(", compat {}\n", text(&plan["compat"])));
    let tried = &plan["tried"];
    out.push_str(&format!(
        "  tried      {} drawn values, {} stored events: {} could not be read, {} were not valid before\n",
        tried["drawn"], tried["stored"], tried["stored_broken"], tried["stored_invalid"]
    ));
    for (name, hop) in [("up", &plan["up"]), ("down", &plan["down"])] {
        out.push_str(&format!("  {name:<10} {}\n", hop_text(hop)));
    }
    for reader in list(&plan["readers"]) {
        let reads = match &reader["reads"] {
            Value::String(form) => form.clone(),
            form => form.to_string(),
        };
        let fate = match reader["fate"].as_str() {
            Some("breaks") => "BREAKS: new events cannot be brought to its version",
            Some("at_risk") => "at risk: it takes events as they are written",
            _ => "good",
        };
        out.push_str(&format!("  group      {} reads {reads}: {fate}\n", text(&reader["group"])));
    }
    for objection in list(&plan["objections"]) {
        out.push_str(&objection_text(objection));
    }
    let verdict = if is_good(plan) { "nothing speaks against it" } else { "refused" };
    out.push_str(&format!("{verdict}\n"));
    out
}

fn version(plan: &Value) -> String {
    format!("version {}", plan["version"])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A caster in a few words.
pub(crate) fn hop_text(hop: &Value) -> String {
    match hop["by"].as_str() {
        Some("same") => "no change needed".to_owned(),
        Some("function") => format!("function {}", text(&hop["name"])),
        Some("operations") => {
            let operations = list(&hop["operations"]);
            let one = |operation: &Value| {
                let place = [&operation["pointer"], &operation["from"]];
                let place = place.into_iter().find_map(Value::as_str).unwrap_or_default();
                let to = operation["to"].as_str().map(|to| format!(" -> {to}"));
                format!("{} {place}{}", text(&operation["op"]), to.unwrap_or_default())
            };
            operations.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        _ => "none".to_owned(),
    }
}

fn objection_text(objection: &Value) -> String {
    let mut out = String::new();
    let way = |objection: &Value| match objection["backward"].as_bool() {
        Some(true) => "cannot read events of",
        _ => "writes events that are not good for readers of",
    };
    match text(&objection["objection"]) {
        "incompatible" => {
            for finding in list(&objection["findings"]) {
                out.push_str(&format!(
                    "  error      {} {} (line {})\n    pair     it {} version {}\n    example  {}\n    \
                     fix      {}\n",
                    text(&finding["rule"]),
                    text(&finding["message"]),
                    finding["reader_line"],
                    way(objection),
                    objection["version"],
                    finding["counter_example"],
                    text(&finding["fix"])
                ));
            }
        }
        "undecided" => out.push_str(&format!(
            "  undecided  whether it {} version {}: {} at {}\n",
            way(objection),
            objection["version"],
            text(&objection["construct"]),
            objection["pointer"]
        )),
        "missing_upcaster" => out.push_str(&format!(
            "  error      no upcaster from {} to {}: prom schema upcaster writes one to fill in\n",
            objection["from"], objection["to"]
        )),
        "cast_fails" => out.push_str(&format!(
            "  error      the casters from {} to {} fail: {}\n    example  {}\n",
            objection["from"],
            objection["to"],
            text(&objection["reason"]),
            objection["value"]
        )),
        "breaks_group" => out.push_str(&format!(
            "  error      group {} reads version {}, and there is no caster from {} to {}\n",
            text(&objection["group"]),
            objection["reads"],
            objection["from"],
            objection["to"]
        )),
        "breaks_event" => out.push_str(&format!(
            "  error      the stored event {}/{} {}\n",
            objection["partition"],
            objection["offset"],
            text(&objection["reason"])
        )),
        _ => out.push_str(&format!("  error      {objection}\n")),
    }
    out
}
