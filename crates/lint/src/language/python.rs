//! Python: module constants, enums, data classes, decorators, f-strings, keyword arguments.

use std::collections::BTreeMap;

use tree_sitter::Node;

use super::collector::{Collector, any, join, parts, plain_call, shape_of};
use super::text::unescaped;
use crate::facts::{Argument, Call, Entry, Expr, Function, Import, ModuleBase, ModuleRef};
use crate::limits::{CHAIN_CALLS_MAX, EXPRESSION_DEPTH_MAX};

pub(super) fn collect(collector: &mut Collector<'_>, root: Node<'_>) {
    collector.children(root, visit);
}

fn visit(collector: &mut Collector<'_>, node: Node<'_>) {
    match node.kind() {
        "comment" => {}
        "import_statement" => import(collector, node),
        "import_from_statement" => import_from(collector, node),
        "assignment" => {
            assign(collector, node);
            collector.children(node, visit);
        }
        "augmented_assignment" => {
            let name = collector.field(node, "left");
            collector.assign(name, node.start_byte(), Expr::Opaque);
            collector.children(node, visit);
        }
        "named_expression" => {
            let value = node.child_by_field_name("value");
            let value = value.map_or(Expr::Opaque, |value| lower(collector, value, 0));
            collector.bind_in_function(collector.field(node, "name"), value);
            collector.children(node, visit);
        }
        "for_statement" | "for_in_clause" => {
            if let Some(left) = node.child_by_field_name("left") {
                bind_opaque(collector, left);
            }
            collector.children(node, visit);
        }
        "function_definition" => {
            let name = collector.field(node, "name");
            collector.bind(name, Expr::Function(node.start_byte()));
            function(collector, node);
        }
        "lambda" => function(collector, node),
        "class_definition" => class(collector, node),
        "call" => {
            let call = lower_call(collector, node, 0);
            collector.call(call);
            collector.children(node, visit);
        }
        _ => collector.children(node, visit),
    }
}

fn bind_opaque(collector: &mut Collector<'_>, pattern: Node<'_>) {
    if pattern.kind() == "identifier" {
        collector.bind_in_function(collector.text(pattern), Expr::Opaque);
    }
    collector.deeper(pattern, |collector| {
        for part in parts(pattern) {
            bind_opaque(collector, part);
        }
    });
}

fn assign(collector: &mut Collector<'_>, node: Node<'_>) {
    let Some(left) = node.child_by_field_name("left") else {
        return;
    };
    // A bare annotation gives no value.
    let Some(right) = node.child_by_field_name("right") else {
        return;
    };
    let value = lower(collector, right, 0);
    match left.kind() {
        "identifier" => collector.bind_in_function(collector.text(left), value),
        "attribute" => {
            let object = collector.field(left, "object");
            let entry = Entry::new(collector.field(left, "attribute"), left.byte_range(), value);
            collector.assign(object, node.start_byte(), Expr::Object(vec![entry]));
        }
        "pattern_list" | "tuple_pattern" => {
            let names = parts(left);
            match value {
                Expr::List(values) if values.len() == names.len() => {
                    for (name, value) in names.into_iter().zip(values) {
                        collector.bind_in_function(collector.text(name), value);
                    }
                }
                _ => bind_opaque(collector, left),
            }
        }
        _ => {}
    }
}

/// `import pkg.topics as t`
fn import(collector: &mut Collector<'_>, node: Node<'_>) {
    for part in parts(node) {
        let (name, alias) = match part.kind() {
            "aliased_import" => (collector.field(part, "name"), collector.field(part, "alias")),
            _ => (collector.text(part), ""),
        };
        let module = ModuleRef { base: ModuleBase::Anywhere, parts: dotted(name) };
        if alias.is_empty() {
            // `import pkg.topics` binds `pkg`, and `pkg.topics.A` goes through both.
            let first = name.split('.').next().unwrap_or(name);
            let parts = vec![first.into()];
            let module = ModuleRef { base: ModuleBase::Anywhere, parts };
            collector.import(first, Import { module, item: None });
        } else {
            collector.import(alias, Import { module, item: None });
        }
    }
}

/// `from .topics import HEARTBEAT as HB`, `from pkg import *`
fn import_from(collector: &mut Collector<'_>, node: Node<'_>) {
    let Some(from) = node.child_by_field_name("module_name") else {
        return;
    };
    let written = collector.text(from);
    let dots = written.len() - written.trim_start_matches('.').len();
    let base = if dots == 0 { ModuleBase::Anywhere } else { ModuleBase::Folder(dots - 1) };
    let module = ModuleRef { base, parts: dotted(written.trim_start_matches('.')) };
    for part in parts(node).into_iter().filter(|part| *part != from) {
        let (name, local) = match part.kind() {
            "aliased_import" => (collector.field(part, "name"), collector.field(part, "alias")),
            "wildcard_import" => {
                collector.facts.stars.push(module.clone());
                continue;
            }
            _ => (collector.text(part), collector.text(part)),
        };
        collector.import(local, Import { module: module.clone(), item: Some(name.into()) });
    }
}

fn dotted(name: &str) -> Vec<Box<str>> {
    name.split('.').map(str::trim).filter(|part| !part.is_empty()).map(Into::into).collect()
}

fn function(collector: &mut Collector<'_>, node: Node<'_>) {
    let mut parameters: Vec<Box<str>> = Vec::new();
    let mut defaults = BTreeMap::new();
    for parameter in node.child_by_field_name("parameters").map(parts).unwrap_or_default() {
        let name = match parameter.kind() {
            "identifier" => Some(parameter),
            "typed_parameter" => parameter.named_child(0),
            _ => parameter.child_by_field_name("name"),
        };
        let Some(name) = name else {
            continue;
        };
        let name = collector.text(name);
        // The receiver is not passed by the caller, and is bound by the class.
        if parameters.is_empty() && matches!(name, "self" | "cls") {
            continue;
        }
        if let Some(value) = parameter.child_by_field_name("value") {
            let known = (value.byte_range(), lower(collector, value, 0));
            defaults.insert(parameters.len(), known);
        }
        parameters.push(name.trim_start_matches('*').into());
    }
    let body = node.child_by_field_name("body");
    let result = body.and_then(|body| result(collector, body));
    collector.in_function(node, Function { parameters, defaults, result }, visit);
}

/// The one expression that a body returns, after an optional document string.
fn result(collector: &Collector<'_>, body: Node<'_>) -> Option<Expr> {
    if body.kind() != "block" {
        return Some(lower(collector, body, 0));
    }
    let statements = parts(body);
    let (last, before) = statements.split_last()?;
    let simple = |node: &Node<'_>| {
        let child = node.named_child(0).map(|child| child.kind());
        node.kind() == "expression_statement" && matches!(child, Some("string" | "assignment"))
    };
    if last.kind() != "return_statement" || !before.iter().all(simple) {
        return None;
    }
    last.named_child(0).map(|value| lower(collector, value, 0))
}

/// Members under the name of the class, and under `self` and `cls` inside it.
fn class(collector: &mut Collector<'_>, node: Node<'_>) {
    let Some(body) = node.child_by_field_name("body") else {
        return;
    };
    let mut entries = Vec::new();
    for statement in parts(body) {
        let inner = match statement.kind() {
            "expression_statement" => statement.named_child(0),
            "decorated_definition" => statement.child_by_field_name("definition"),
            _ => Some(statement),
        };
        let Some(inner) = inner else {
            continue;
        };
        let (name, value) = match inner.kind() {
            "assignment" => {
                let value = inner.child_by_field_name("right");
                (inner.child_by_field_name("left"), value.map(|value| lower(collector, value, 0)))
            }
            "function_definition" => {
                let value = Expr::Function(inner.start_byte());
                (inner.child_by_field_name("name"), Some(value))
            }
            _ => (None, None),
        };
        if let (Some(name), Some(value)) = (name, value) {
            entries.push(Entry::new(collector.text(name), name.byte_range(), value));
        }
    }
    let object = Expr::Object(entries.clone());
    collector.bind(collector.field(node, "name"), object.clone());
    collector.bind_within(body, "self", object.clone());
    collector.bind_within(body, "cls", object);
    // The members themselves are names only inside the body.
    for entry in entries {
        if let (Some(Expr::Text(key)), false) =
            (&entry.key, matches!(entry.value, Expr::Function(_)))
        {
            collector.bind_within(body, key, entry.value.clone());
        }
    }
    collector.in_scope(body, visit_member);
    let bases = parts(node).into_iter().filter(|part| *part != body);
    for part in bases {
        collector.children(part, visit);
    }
}

/// A statement of a class body. Its assignments are members, which are bound already.
fn visit_member(collector: &mut Collector<'_>, node: Node<'_>) {
    let assignment = node.named_child(0).filter(|child| child.kind() == "assignment");
    match assignment {
        Some(assignment) if node.kind() == "expression_statement" => {
            collector.children(assignment, visit);
        }
        _ => visit(collector, node),
    }
}

fn lower(collector: &Collector<'_>, node: Node<'_>, depth: usize) -> Expr {
    if depth > EXPRESSION_DEPTH_MAX {
        return Expr::Opaque;
    }
    let inner = |child: Node<'_>| lower(collector, child, depth + 1);
    let field = |name: &str| node.child_by_field_name(name).map_or(Expr::Opaque, inner);
    match node.kind() {
        "string" => string(collector, node, depth),
        "concatenated_string" => join(parts(node).into_iter().map(inner).collect()),
        "identifier" => Expr::name(node.start_byte(), collector.text(node)),
        "attribute" => field("object").member(collector.field(node, "attribute")),
        "subscript" => field("value").index(field("subscript")),
        "call" => known_call(lower_call(collector, node, depth)),
        "binary_operator" => {
            let sides = vec![field("left"), field("right")];
            match collector.field(node, "operator") {
                "+" => join(sides),
                "%" => percent(sides),
                _ => Expr::Opaque,
            }
        }
        "boolean_operator" if collector.field(node, "operator") == "or" => {
            any(vec![field("left"), field("right")])
        }
        "conditional_expression" => {
            let sides = parts(node);
            any([0, 2]
                .iter()
                .filter_map(|&side| sides.get(side))
                .map(|side| inner(*side))
                .collect())
        }
        "parenthesized_expression" | "await" => {
            parts(node).into_iter().next().map_or(Expr::Opaque, inner)
        }
        "list" | "tuple" | "set" | "expression_list" => {
            Expr::List(parts(node).into_iter().map(inner).collect())
        }
        "dictionary" => Expr::Object(entries(collector, node, depth)),
        "lambda" => Expr::Function(node.start_byte()),
        "integer" => collector.text(node).parse().map_or(Expr::NotText, Expr::Number),
        "float" | "true" | "false" | "none" => Expr::NotText,
        _ => Expr::Opaque,
    }
}

fn string(collector: &Collector<'_>, node: Node<'_>, depth: usize) -> Expr {
    let all = parts(node);
    let start = all.iter().find(|part| part.kind() == "string_start");
    let prefix = start.map_or("", |start| collector.text(*start)).to_lowercase();
    let (raw, formatted) = (prefix.contains('r'), prefix.contains('f'));
    let mut of = Vec::new();
    for part in all {
        match part.kind() {
            "string_content" => {
                let text = collector.text(part);
                let text = if raw { text.to_owned() } else { unescaped(text) };
                let doubled = formatted.then(|| text.replace("{{", "{").replace("}}", "}"));
                of.push(Expr::text(doubled.unwrap_or(text)));
            }
            "interpolation" => {
                let plain = part.child_by_field_name("format_specifier").is_none();
                let value = part.child_by_field_name("expression").or_else(|| part.named_child(0));
                let value = value.filter(|_| plain);
                of.push(value.map_or(Expr::Opaque, |value| lower(collector, value, depth + 1)));
            }
            _ => {}
        }
    }
    join(of)
}

/// `"%s.received" % NAME`
fn percent(mut sides: Vec<Expr>) -> Expr {
    let values = match sides.pop() {
        Some(Expr::List(values)) => values,
        Some(single) => vec![single],
        None => return Expr::Opaque,
    };
    let Some(Expr::Text(format)) = sides.pop() else {
        return Expr::Opaque;
    };
    filled(&format, "%s", values)
}

/// The text with each `hole` replaced by the next value; opaque where the counts differ.
fn filled(format: &str, hole: &str, values: Vec<Expr>) -> Expr {
    let fixed: Vec<&str> = format.split(hole).collect();
    if fixed.len() != values.len() + 1 {
        return Expr::Opaque;
    }
    let mut of = Vec::new();
    let mut values = values.into_iter();
    for text in fixed {
        of.push(Expr::text(text));
        of.extend(values.next());
    }
    join(of)
}

fn entries(collector: &Collector<'_>, node: Node<'_>, depth: usize) -> Vec<Entry> {
    let inner = |child: Node<'_>| lower(collector, child, depth + 1);
    let entry = |part: Node<'_>| match part.kind() {
        "pair" => {
            let key = part.child_by_field_name("key")?;
            let value = part.child_by_field_name("value").map_or(Expr::Opaque, inner);
            Some(Entry { key: Some(inner(key)), span: key.byte_range(), value })
        }
        "dictionary_splat" => {
            let value = part.named_child(0).map_or(Expr::Opaque, inner);
            Some(Entry { key: None, span: part.byte_range(), value })
        }
        _ => None,
    };
    parts(node).into_iter().filter_map(entry).collect()
}

fn lower_call(collector: &Collector<'_>, node: Node<'_>, depth: usize) -> Call {
    let function = node.child_by_field_name("function");
    let callee = function.map_or(Expr::Opaque, |callee| lower(collector, callee, depth + 1));
    let listed = node.child_by_field_name("arguments").map(parts).unwrap_or_default();
    let arguments = listed.into_iter().map(|argument| {
        let named = argument.kind() == "keyword_argument";
        let value = argument.child_by_field_name("value").filter(|_| named).unwrap_or(argument);
        Argument {
            keyword: named.then(|| collector.field(argument, "name").into()),
            span: value.byte_range(),
            value: lower(collector, value, depth + 1),
        }
    });
    let shape = shape_of(&callee);
    let mut call = plain_call(node.byte_range(), callee, arguments.collect(), shape);
    let mut next = function.and_then(|callee| callee.child_by_field_name("object"));
    while let Some(receiver) = next.filter(|_| call.chain.len() < CHAIN_CALLS_MAX) {
        let called = receiver.child_by_field_name("function");
        if let Some(called) = called.filter(|_| receiver.kind() == "call") {
            let name = called.child_by_field_name("attribute").unwrap_or(called);
            call.chain.push(collector.text(name).into());
        }
        next = called.unwrap_or(receiver).child_by_field_name("object");
    }
    call
}

/// `"{}.received".format(NAME)` and `".".join([A, B])`.
fn known_call(call: Call) -> Expr {
    let Expr::Member(receiver, _) = &call.callee else {
        return Expr::Call(Box::new(call));
    };
    let Expr::Text(text) = &**receiver else {
        return Expr::Call(Box::new(call));
    };
    let values = call.arguments.iter().map(|argument| argument.value.clone());
    match call.name() {
        Some("format") if call.arguments.iter().all(|argument| argument.keyword.is_none()) => {
            filled(text, "{}", values.collect())
        }
        Some("format") => named_format(text, &call.arguments),
        Some("join") => match values.into_iter().next() {
            Some(Expr::List(items)) => {
                let mut of = Vec::new();
                for item in items {
                    if !of.is_empty() {
                        of.push(Expr::text(text.clone()));
                    }
                    of.push(item);
                }
                join(of)
            }
            _ => Expr::Opaque,
        },
        _ => Expr::Call(Box::new(call)),
    }
}

/// `"{name}.received".format(name=NAME)`
fn named_format(text: &str, arguments: &[Argument]) -> Expr {
    let mut of = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, next)) = after.split_once('}') else {
            return Expr::Opaque;
        };
        let value = arguments.iter().find(|argument| argument.keyword.as_deref() == Some(name));
        of.push(Expr::text(before));
        of.push(value.map_or(Expr::Opaque, |argument| argument.value.clone()));
        rest = next;
    }
    of.push(Expr::text(rest));
    join(of)
}
