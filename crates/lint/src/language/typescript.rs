//! TypeScript and TSX: enums, namespaces, and wrappers that only the type checker sees
//! (`as const`, `satisfies`, `!`).

use tree_sitter::Node;

use super::collector::{Collector, parts};
use super::ecmascript;
use crate::facts::{Entry, Expr};

pub(super) fn collect(collector: &mut Collector<'_>, root: Node<'_>) {
    collector.children(root, ecmascript::visit);
}

/// `enum Topics { Heartbeat = "heartbeat.received" }`
pub(super) fn bind_enum(collector: &mut Collector<'_>, node: Node<'_>) {
    let Some(body) = node.child_by_field_name("body") else {
        return;
    };
    let mut entries = Vec::new();
    for member in parts(body) {
        let (name, value) = match member.child_by_field_name("value") {
            Some(value) => (
                member.child_by_field_name("name").unwrap_or(member),
                ecmascript::lower(collector, value, 0),
            ),
            None => (member, Expr::NotText),
        };
        let key = collector.text(name).trim_matches(['"', '\'']);
        entries.push(Entry::new(key, name.byte_range(), value));
    }
    let name = collector.field(node, "name");
    // Members see each other by their bare names.
    for entry in &entries {
        if let Some(Expr::Text(key)) = &entry.key {
            collector.bind_within(body, key, entry.value.clone());
        }
    }
    collector.bind(name, Expr::Object(entries));
}

/// `namespace Topics { export const Heartbeat = "heartbeat.received" }`
pub(super) fn bind_namespace(collector: &mut Collector<'_>, node: Node<'_>) {
    let Some(body) = node.child_by_field_name("body") else {
        return;
    };
    let mut entries = Vec::new();
    for statement in parts(body) {
        let declaration = statement.child_by_field_name("declaration").unwrap_or(statement);
        for declarator in parts(declaration) {
            let name = declarator.child_by_field_name("name");
            if let (Some(name), Some(value)) = (name, declarator.child_by_field_name("value")) {
                let value = ecmascript::lower(collector, value, 0);
                entries.push(Entry::new(collector.text(name), name.byte_range(), value));
            }
        }
    }
    let name = collector.field(node, "name");
    collector.bind(name, Expr::Object(entries));
}

/// The expression inside `x as const`, `x satisfies T`, `x!` and `<T>x`.
pub(super) fn unwrapped<'t>(node: Node<'t>) -> Option<Node<'t>> {
    match node.kind() {
        "as_expression" | "satisfies_expression" | "non_null_expression" => node.named_child(0),
        "type_assertion" => node.named_child(u32::from(node.named_child_count() > 1)),
        _ => None,
    }
}
