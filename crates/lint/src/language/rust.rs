//! Rust: constants, enums with their text, modules, attributes and macros.

use std::collections::BTreeMap;

use tree_sitter::Node;

use super::collector::{Collector, any, parts, plain_call, shape_of};
use super::rust_tokens as tokens;
use super::text::unescaped;
use crate::facts::{
    Argument, Call, CallShape, Entry, Expr, Function, Import, ModuleBase, ModuleRef,
};
use crate::limits::{CHAIN_CALLS_MAX, EXPRESSION_DEPTH_MAX};

pub(super) fn collect(collector: &mut Collector<'_>, root: Node<'_>) {
    collector.children(root, visit);
}

fn visit(collector: &mut Collector<'_>, node: Node<'_>) {
    match node.kind() {
        "line_comment" | "block_comment" => {}
        "use_declaration" => {
            if let Some(argument) = node.child_by_field_name("argument") {
                import(collector, argument, &[]);
            }
        }
        "const_item" | "static_item" => {
            let value = node.child_by_field_name("value");
            let value = value.map_or(Expr::Opaque, |value| lower(collector, value, 0));
            collector.bind(collector.field(node, "name"), value);
            collector.children(node, visit);
        }
        "let_declaration" => {
            declare(collector, node);
            collector.children(node, visit);
        }
        "assignment_expression" => {
            let right = node.child_by_field_name("right");
            let value = right.map_or(Expr::Opaque, |right| lower(collector, right, 0));
            collector.assign(collector.field(node, "left"), node.start_byte(), value);
            collector.children(node, visit);
        }
        "function_item" => {
            collector.bind(collector.field(node, "name"), Expr::Function(node.start_byte()));
            function(collector, node);
        }
        "closure_expression" => function(collector, node),
        "enum_item" => {
            let entries = variants(collector, node);
            collector.bind(collector.field(node, "name"), Expr::Object(entries));
        }
        "mod_item" | "impl_item" | "trait_item" => container(collector, node),
        "block" | "match_arm" => collector.in_scope(node, visit),
        "attribute_item" => tokens::attribute(collector, node),
        "macro_invocation" => tokens::invocation(collector, node),
        "call_expression" => {
            let call = lower_call(collector, node, 0);
            collector.call(call);
            collector.children(node, visit);
        }
        _ => collector.children(node, visit),
    }
}

fn declare(collector: &mut Collector<'_>, node: Node<'_>) {
    let Some(pattern) = node.child_by_field_name("pattern") else {
        return;
    };
    let value = match node.child_by_field_name("value") {
        Some(value) => lower(collector, value, 0),
        None => Expr::Any(Vec::new()),
    };
    if pattern.kind() == "identifier" {
        collector.bind(collector.text(pattern), value);
    } else {
        bind_opaque(collector, pattern);
    }
}

fn bind_opaque(collector: &mut Collector<'_>, pattern: Node<'_>) {
    if pattern.kind() == "identifier" {
        collector.bind(collector.text(pattern), Expr::Opaque);
    }
    collector.deeper(pattern, |collector| {
        for part in parts(pattern) {
            bind_opaque(collector, part);
        }
    });
}

/// A module or `impl`: its items are names inside it, and members of its name outside.
fn container(collector: &mut Collector<'_>, node: Node<'_>) {
    let Some(body) = node.child_by_field_name("body") else {
        return;
    };
    let name = node.child_by_field_name("name").or_else(|| node.child_by_field_name("type"));
    // `impl<T> Topic for Heartbeat<T>` is about `Heartbeat`.
    let name = name.map(|name| name.child_by_field_name("type").unwrap_or(name));
    let name = name.map_or("", |name| collector.text(name));
    let entries = items(collector, body, 0);
    collector.bind(name, Expr::Object(entries));
    if node.kind() == "impl_item" {
        collector.bind_within(body, "Self", Expr::name(node.start_byte(), name));
    }
    collector.in_scope(body, visit);
}

fn items(collector: &Collector<'_>, body: Node<'_>, depth: usize) -> Vec<Entry> {
    let mut entries = Vec::new();
    if depth > EXPRESSION_DEPTH_MAX {
        return entries;
    }
    for item in parts(body) {
        let Some(name) = item.child_by_field_name("name") else {
            continue;
        };
        let value = match item.kind() {
            "const_item" | "static_item" => {
                let value = item.child_by_field_name("value");
                value.map_or(Expr::Opaque, |value| lower(collector, value, depth))
            }
            "enum_item" => Expr::Object(variants(collector, item)),
            "mod_item" => match item.child_by_field_name("body") {
                Some(body) => Expr::Object(items(collector, body, depth + 1)),
                None => continue,
            },
            "function_item" => {
                entries.extend(arms(collector, item));
                Expr::Function(item.start_byte())
            }
            _ => continue,
        };
        entries.push(Entry::new(collector.text(name), name.byte_range(), value));
    }
    entries
}

/// `fn as_str(&self) -> &str { match self { Self::Heartbeat => "heartbeat.received", … } }` gives
/// each variant a member `as_str()`.
fn arms(collector: &Collector<'_>, function: Node<'_>) -> Vec<Entry> {
    let method = collector.field(function, "name");
    let body = function.child_by_field_name("body");
    let matched = body.and_then(|body| match parts(body).as_slice() {
        [only] => Some(if only.kind() == "expression_statement" {
            only.named_child(0).unwrap_or(*only)
        } else {
            *only
        }),
        _ => None,
    });
    let Some(matched) = matched.filter(|node| node.kind() == "match_expression") else {
        return Vec::new();
    };
    if !collector.field(matched, "value").ends_with("self") {
        return Vec::new();
    }
    let arms = matched.child_by_field_name("body").map(parts).unwrap_or_default();
    let mut entries = Vec::new();
    for arm in arms {
        let value = arm.child_by_field_name("value");
        let Some(value) = value.map(|value| lower(collector, value, 0)) else {
            continue;
        };
        for pattern in collector.field(arm, "pattern").split('|') {
            let path = pattern.split(['(', '{']).next().unwrap_or(pattern).trim();
            let variant = path.rsplit("::").next().unwrap_or(path);
            let texts = vec![Entry::new(&format!("{method}()"), arm.byte_range(), value.clone())];
            entries.push(Entry::new(variant, arm.byte_range(), Expr::Object(texts)));
        }
    }
    entries
}

/// The variants of an enum; `#[serde(rename = "…")]` gives one its text.
fn variants(collector: &Collector<'_>, item: Node<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut renamed = None;
    for part in item.child_by_field_name("body").map(parts).unwrap_or_default() {
        if part.kind() == "attribute_item" {
            renamed = tokens::renamed(collector, part).or(renamed);
            continue;
        }
        let Some(name) = part.child_by_field_name("name") else {
            continue;
        };
        let text = renamed.take().map(|text| Entry::new("rename()", name.byte_range(), text));
        let value = Expr::Object(text.into_iter().collect());
        entries.push(Entry::new(collector.text(name), name.byte_range(), value));
    }
    entries
}

/// Every leaf of a `use`; `before` is the path of the lists around it.
fn import(collector: &mut Collector<'_>, node: Node<'_>, before: &[Box<str>]) {
    let path = |node: Option<Node<'_>>| {
        let written = node.map_or("", |node| collector.text(node));
        let own = written.split("::").map(str::trim).filter(|part| !part.is_empty());
        before.iter().cloned().chain(own.map(Into::into)).collect::<Vec<Box<str>>>()
    };
    match node.kind() {
        "scoped_use_list" => {
            let path = path(node.child_by_field_name("path"));
            if let Some(list) = node.child_by_field_name("list") {
                collector.deeper(list, |collector| import(collector, list, &path));
            }
        }
        "use_list" => {
            for part in parts(node) {
                import(collector, part, before);
            }
        }
        "use_wildcard" => {
            let star = module(&path(node.named_child(0)));
            collector.facts.stars.push(star);
        }
        _ => {
            let named = node.child_by_field_name("path").filter(|_| node.kind() == "use_as_clause");
            let mut whole = path(named.or(Some(node)));
            if whole.last().is_some_and(|last| &**last == "self") {
                whole.pop();
            }
            let alias = node.child_by_field_name("alias").map(|alias| collector.text(alias));
            let Some(item) = whole.pop() else {
                return;
            };
            let local: Box<str> = alias.map_or_else(|| item.clone(), Into::into);
            let module = module(&whole);
            collector.import(&local, Import { module, item: Some(item) });
        }
    }
}

/// A module by its path: `crate`, `self` and `super` say where it begins.
pub(crate) fn module(path: &[Box<str>]) -> ModuleRef {
    let supers = path.iter().take_while(|part| &***part == "super").count();
    let (base, skipped) = match path.first().map(|first| &**first) {
        Some("crate") => (ModuleBase::Crate, 1),
        Some("self") => (ModuleBase::Module(0), 1),
        Some("super") => (ModuleBase::Module(supers), supers),
        _ => (ModuleBase::Anywhere, 0),
    };
    ModuleRef { base, parts: path.iter().skip(skipped).cloned().collect() }
}

fn function(collector: &mut Collector<'_>, node: Node<'_>) {
    let mut parameters = Vec::new();
    for parameter in node.child_by_field_name("parameters").map(parts).unwrap_or_default() {
        if matches!(parameter.kind(), "self_parameter" | "attribute_item") {
            continue;
        }
        let pattern = parameter.child_by_field_name("pattern").unwrap_or(parameter);
        let plain = pattern.kind() == "identifier";
        parameters.push(if plain { collector.text(pattern).into() } else { "".into() });
    }
    let body = node.child_by_field_name("body");
    let result = body.and_then(|body| match body.kind() {
        "block" => match parts(body).as_slice() {
            [only] if only.kind() != "expression_statement" => Some(lower(collector, *only, 0)),
            _ => None,
        },
        _ => Some(lower(collector, body, 0)),
    });
    collector.in_function(node, Function { parameters, defaults: BTreeMap::new(), result }, visit);
}

pub(super) fn lower(collector: &Collector<'_>, node: Node<'_>, depth: usize) -> Expr {
    if depth > EXPRESSION_DEPTH_MAX {
        return Expr::Opaque;
    }
    let inner = |child: Node<'_>| lower(collector, child, depth + 1);
    let field = |name: &str| node.child_by_field_name(name).map_or(Expr::Opaque, inner);
    match node.kind() {
        "string_literal" | "raw_string_literal" => Expr::text(literal(collector.text(node))),
        "identifier"
        | "self"
        | "type_identifier"
        | "scoped_identifier"
        | "scoped_type_identifier" => tokens::path(node.start_byte(), collector.text(node)),
        "field_expression" => field("value").member(collector.field(node, "field")),
        "struct_expression" => field("name"),
        "generic_type" => field("type"),
        "call_expression" => Expr::Call(Box::new(lower_call(collector, node, depth))),
        "macro_invocation" => tokens::value(collector, node, depth + 1),
        "reference_expression" => field("value"),
        "try_expression" | "await_expression" | "parenthesized_expression" => {
            parts(node).into_iter().next().map_or(Expr::Opaque, inner)
        }
        "binary_expression" if collector.field(node, "operator") == "+" => {
            Expr::Join(vec![field("left"), field("right")])
        }
        "if_expression" => any(vec![field("consequence"), field("alternative")]),
        "else_clause" => node.named_child(0).map_or(Expr::Opaque, inner),
        "block" => match parts(node).as_slice() {
            [only] => inner(*only),
            _ => Expr::Opaque,
        },
        "array_expression" => Expr::List(parts(node).into_iter().map(inner).collect()),
        "tuple_expression" => Expr::Opaque,
        "integer_literal" => collector.text(node).parse().map_or(Expr::NotText, Expr::Number),
        "closure_expression" => Expr::Function(node.start_byte()),
        "boolean_literal" | "float_literal" | "char_literal" | "unit_expression" => Expr::NotText,
        "range_expression" => Expr::NotText,
        _ => Expr::Opaque,
    }
}

/// The text of `"…"`, `r"…"` and `r#"…"#`.
pub(super) fn literal(written: &str) -> String {
    let Some(start) = written.find('"') else {
        return String::new();
    };
    let end = written.rfind('"').unwrap_or(start);
    let inside = written.get(start + 1..end).unwrap_or("");
    let raw = written.get(..start).is_some_and(|prefix| prefix.contains('r'));
    if raw { inside.to_owned() } else { unescaped(inside) }
}

fn lower_call(collector: &Collector<'_>, node: Node<'_>, depth: usize) -> Call {
    let mut function = node.child_by_field_name("function");
    let mut type_argument = None;
    if let Some(generic) = function.filter(|function| function.kind() == "generic_function") {
        let first =
            generic.child_by_field_name("type_arguments").and_then(|types| types.named_child(0));
        type_argument = first.map(|first| (first.byte_range(), lower(collector, first, depth + 1)));
        function = generic.child_by_field_name("function");
    }
    let callee = function.map_or(Expr::Opaque, |callee| lower(collector, callee, depth + 1));
    let listed = node.child_by_field_name("arguments").map(parts).unwrap_or_default();
    let arguments = listed.into_iter().map(|argument| Argument {
        keyword: None,
        span: argument.byte_range(),
        value: lower(collector, argument, depth + 1),
    });
    let is_field = function.is_some_and(|function| function.kind() == "field_expression");
    let shape = if is_field { CallShape::Method } else { shape_of(&callee) };
    let mut call = plain_call(node.byte_range(), callee, arguments.collect(), shape);
    call.chain = function.map(|callee| chain(collector, callee)).unwrap_or_default();
    call.type_argument = type_argument;
    call
}

fn chain(collector: &Collector<'_>, callee: Node<'_>) -> Vec<Box<str>> {
    let mut names = Vec::new();
    let mut next = callee.child_by_field_name("value");
    while let Some(node) = next.filter(|_| names.len() < CHAIN_CALLS_MAX) {
        next = match node.kind() {
            "call_expression" => {
                let mut function = node.child_by_field_name("function");
                if let Some(generic) = function.filter(|node| node.kind() == "generic_function") {
                    function = generic.child_by_field_name("function");
                }
                let name = function.map(|function| {
                    let field = function.child_by_field_name("field");
                    field.or_else(|| function.child_by_field_name("name")).unwrap_or(function)
                });
                names.extend(name.map(|name| collector.text(name).into()));
                function.and_then(|function| function.child_by_field_name("value"))
            }
            "field_expression" => node.child_by_field_name("value"),
            "await_expression" | "try_expression" | "parenthesized_expression" => {
                node.named_child(0)
            }
            _ => None,
        };
    }
    names
}
