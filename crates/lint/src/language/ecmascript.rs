//! What JavaScript and TypeScript have in common, which is nearly everything that matters here.

use std::collections::BTreeMap;

use tree_sitter::Node;

use super::collector::{Collector, any, join, parts, plain_call, shape_of};
use super::text::unescaped;
use super::typescript;
use crate::facts::{Argument, Call, Entry, Expr, Function, Import, ModuleBase, ModuleRef};
use crate::limits::{CHAIN_CALLS_MAX, EXPRESSION_DEPTH_MAX};

pub(super) fn visit(collector: &mut Collector<'_>, node: Node<'_>) {
    match node.kind() {
        // Types name nothing that is called.
        "comment"
        | "type_annotation"
        | "type_arguments"
        | "interface_declaration"
        | "type_alias_declaration" => {}
        "import_statement" => import(collector, node),
        "export_statement" => export(collector, node),
        "variable_declarator" => declare(collector, node),
        "assignment_expression" => {
            assign(collector, node);
            collector.children(node, visit);
        }
        "augmented_assignment_expression" => {
            let left = collector.field(node, "left");
            collector.assign(left, node.start_byte(), Expr::Opaque);
            collector.children(node, visit);
        }
        "enum_declaration" => typescript::bind_enum(collector, node),
        "internal_module" | "module" => {
            typescript::bind_namespace(collector, node);
            collector.children(node, visit);
        }
        "function_declaration" | "generator_function_declaration" => {
            let name = collector.field(node, "name");
            collector.bind(name, Expr::Function(node.start_byte()));
            function(collector, node);
        }
        "arrow_function" | "function_expression" | "generator_function" | "method_definition" => {
            function(collector, node);
        }
        "class_declaration" | "abstract_class_declaration" | "class" => class(collector, node),
        "statement_block" | "for_statement" | "for_in_statement" | "switch_body" => {
            if let Some(left) = node.child_by_field_name("left") {
                bind_pattern(collector, left, &Expr::Opaque);
            }
            collector.in_scope(node, visit);
        }
        "call_expression" | "new_expression" => {
            let call = lower_call(collector, node, 0);
            collector.call(call);
            collector.children(node, visit);
        }
        _ => collector.children(node, visit),
    }
}

fn declare(collector: &mut Collector<'_>, node: Node<'_>) {
    let value = match node.child_by_field_name("value") {
        Some(value) => lower(collector, value, 0),
        // `let topic;`: what it gets is said by later assignments.
        None if node.parent().is_some_and(|parent| parent.kind() == "lexical_declaration") => {
            return collector.bind(collector.field(node, "name"), Expr::Any(Vec::new()));
        }
        None => Expr::Opaque,
    };
    if let Some(name) = node.child_by_field_name("name") {
        if name.kind() == "identifier" {
            let is_var =
                node.parent().is_some_and(|parent| parent.kind() == "variable_declaration");
            let name = collector.text(name);
            if is_var {
                collector.bind_in_function(name, value);
            } else {
                collector.bind(name, value);
            }
        } else {
            bind_pattern(collector, name, &value);
        }
    }
    collector.children(node, visit);
}

/// `const { A, B: C } = value`
fn bind_pattern(collector: &mut Collector<'_>, pattern: Node<'_>, value: &Expr) {
    match pattern.kind() {
        "identifier" | "shorthand_property_identifier_pattern" => {
            collector.bind(collector.text(pattern), value.clone());
        }
        "object_pattern" => {
            for part in parts(pattern) {
                let (key, target) = match part.kind() {
                    "shorthand_property_identifier_pattern" => (part, part),
                    "pair_pattern" => {
                        let key = part.child_by_field_name("key").unwrap_or(part);
                        (key, part.child_by_field_name("value").unwrap_or(part))
                    }
                    "object_assignment_pattern" => {
                        let left = part.child_by_field_name("left").unwrap_or(part);
                        (left, left)
                    }
                    _ => continue,
                };
                let member = value.clone().member(collector.text(key));
                collector.deeper(target, |collector| bind_pattern(collector, target, &member));
            }
        }
        _ => collector.deeper(pattern, |collector| {
            for part in parts(pattern) {
                bind_pattern(collector, part, &Expr::Opaque);
            }
        }),
    }
}

fn assign(collector: &mut Collector<'_>, node: Node<'_>) {
    let (Some(left), Some(right)) =
        (node.child_by_field_name("left"), node.child_by_field_name("right"))
    else {
        return;
    };
    let value = lower(collector, right, 0);
    let at = node.start_byte();
    match left.kind() {
        "identifier" => collector.assign(collector.text(left), at, value),
        "member_expression" => {
            let object = collector.field(left, "object");
            let property = collector.field(left, "property");
            match (object, property) {
                ("module", "exports") => collector.bind("module.exports", value),
                ("exports" | "module.exports", name) => collector.bind(name, value),
                (object, name) => {
                    let entry = Entry::new(name, left.byte_range(), value);
                    collector.assign(object, at, Expr::Object(vec![entry]));
                }
            }
        }
        _ => {}
    }
}

/// `export { A } from "./topics"`, `export * from "./topics"`, `export default …`
fn export(collector: &mut Collector<'_>, node: Node<'_>) {
    let source = node.child_by_field_name("source").map(|source| module(collector, source));
    if let Some(value) = node.child_by_field_name("value") {
        let value = lower(collector, value, 0);
        collector.bind("default", value);
    }
    let mut cursor = node.walk();
    if node.children(&mut cursor).any(|child| child.kind() == "default")
        && let Some(declared) = node.child_by_field_name("declaration")
    {
        let value = match declared.kind() {
            "function_declaration" => Expr::Function(declared.start_byte()),
            _ => Expr::name(declared.start_byte(), collector.field(declared, "name")),
        };
        collector.bind("default", value);
    }
    for part in parts(node) {
        if part.kind() != "export_clause" {
            continue;
        }
        for specifier in parts(part) {
            let name = collector.field(specifier, "name");
            let alias = specifier.child_by_field_name("alias").map(|alias| collector.text(alias));
            match (&source, alias) {
                (Some(module), alias) => {
                    let import = Import { module: module.clone(), item: Some(name.into()) };
                    collector.import(alias.unwrap_or(name), import);
                }
                (None, Some(alias)) => {
                    collector.bind(alias, Expr::name(specifier.start_byte(), name));
                }
                (None, None) => {}
            }
        }
    }
    let star = parts(node).iter().all(|part| part.kind() == "string");
    if let (Some(module), true) = (source, star) {
        collector.facts.stars.push(module);
    }
    collector.children(node, visit);
}

fn import(collector: &mut Collector<'_>, node: Node<'_>) {
    let Some(source) = node.child_by_field_name("source") else {
        return;
    };
    let module = module(collector, source);
    let clauses = parts(node).into_iter().filter(|part| part.kind() == "import_clause");
    for part in clauses.flat_map(parts) {
        match part.kind() {
            "identifier" => {
                let item = Some("default".into());
                collector.import(collector.text(part), Import { module: module.clone(), item });
            }
            "namespace_import" => {
                let local = parts(part).first().map_or("", |name| collector.text(*name));
                collector.import(local, Import { module: module.clone(), item: None });
            }
            _ => {
                for specifier in parts(part) {
                    let name = collector.field(specifier, "name");
                    let alias = specifier.child_by_field_name("alias");
                    let local = alias.map_or(name, |alias| collector.text(alias));
                    let item = Some(name.into());
                    collector.import(local, Import { module: module.clone(), item });
                }
            }
        }
    }
}

fn module(collector: &Collector<'_>, source: Node<'_>) -> ModuleRef {
    module_named(collector.text(source).trim_matches(['"', '\'', '`']))
}

fn module_named(specifier: &str) -> ModuleRef {
    let relative = specifier.starts_with('.');
    let mut above = 0;
    let mut parts: Vec<Box<str>> = Vec::new();
    for part in specifier.split('/') {
        match part {
            "" | "." | "~" | "@" => {}
            ".." => above += 1,
            part => parts.push(part.trim_start_matches('@').into()),
        }
    }
    if let Some(last) = parts.last_mut() {
        let endings = [".js", ".ts", ".mjs", ".cjs", ".mts", ".cts", ".jsx", ".tsx"];
        if let Some(stem) = endings.iter().find_map(|ending| last.strip_suffix(ending)) {
            *last = stem.into();
        }
    }
    let base = if relative { ModuleBase::Folder(above) } else { ModuleBase::Anywhere };
    ModuleRef { base, parts }
}

fn function(collector: &mut Collector<'_>, node: Node<'_>) {
    let mut parameters: Vec<Box<str>> = Vec::new();
    let mut defaults = BTreeMap::new();
    if let Some(single) = node.child_by_field_name("parameter") {
        parameters.push(collector.text(single).into());
    }
    for parameter in node.child_by_field_name("parameters").map(parts).unwrap_or_default() {
        // `this: Type` is not passed by the caller.
        let pattern = parameter.child_by_field_name("pattern").unwrap_or(parameter);
        let value = parameter.child_by_field_name("value");
        if let Some(value) = value.or_else(|| pattern.child_by_field_name("right")) {
            let known = (value.byte_range(), lower(collector, value, 0));
            defaults.insert(parameters.len(), known);
        }
        let pattern = pattern.child_by_field_name("left").unwrap_or(pattern);
        match pattern.kind() {
            "this" => {}
            "identifier" => parameters.push(collector.text(pattern).into()),
            _ => {
                parameters.push("".into());
                let value = Expr::Opaque;
                bind_names_within(collector, pattern, node, &value);
            }
        }
    }
    let body = node.child_by_field_name("body");
    let result = body.and_then(|body| result(collector, body));
    collector.in_function(node, Function { parameters, defaults, result }, visit);
}

fn bind_names_within(c: &mut Collector<'_>, pattern: Node<'_>, scope: Node<'_>, value: &Expr) {
    if matches!(pattern.kind(), "identifier" | "shorthand_property_identifier_pattern") {
        c.bind_within(scope, c.text(pattern), value.clone());
    }
    c.deeper(pattern, |c| {
        for part in parts(pattern) {
            bind_names_within(c, part, scope, value);
        }
    });
}

/// The one expression that a body returns; `None` where there may be others.
fn result(collector: &Collector<'_>, body: Node<'_>) -> Option<Expr> {
    if body.kind() != "statement_block" {
        return Some(lower(collector, body, 0));
    }
    let statements = parts(body);
    let (last, before) = statements.split_last()?;
    let simple = |node: &Node<'_>| matches!(node.kind(), "lexical_declaration");
    if last.kind() != "return_statement" || !before.iter().all(simple) {
        return None;
    }
    last.named_child(0).map(|value| lower(collector, value, 0))
}

/// A class has its members under its name, for statics and instances alike, and under `this`.
fn class(collector: &mut Collector<'_>, node: Node<'_>) {
    let Some(body) = node.child_by_field_name("body") else {
        return;
    };
    let mut members = Vec::new();
    for member in parts(body) {
        let name =
            member.child_by_field_name("name").or_else(|| member.child_by_field_name("property"));
        let Some(name) = name else {
            continue;
        };
        let value = match member.kind() {
            "method_definition" => Expr::Function(member.start_byte()),
            _ => match member.child_by_field_name("value") {
                Some(value) => lower(collector, value, 0),
                None => continue,
            },
        };
        members.push(Entry::new(collector.text(name), name.byte_range(), value));
    }
    let name = collector.field(node, "name");
    collector.bind(name, Expr::Object(members.clone()));
    collector.bind_within(body, "this", Expr::Object(members));
    collector.children(node, visit);
}

/// What an expression is, as far as names of topics go.
pub(super) fn lower(collector: &Collector<'_>, node: Node<'_>, depth: usize) -> Expr {
    if depth > EXPRESSION_DEPTH_MAX {
        return Expr::Opaque;
    }
    let inner = |child: Node<'_>| lower(collector, child, depth + 1);
    if let Some(wrapped) = typescript::unwrapped(node) {
        return inner(wrapped);
    }
    match node.kind() {
        "string" => Expr::text(literal(collector.text(node))),
        "template_string" => template(collector, node, depth),
        "identifier" | "this" | "property_identifier" | "shorthand_property_identifier" => {
            Expr::name(node.start_byte(), collector.text(node))
        }
        "member_expression" => match node.child_by_field_name("object") {
            Some(object) => inner(object).member(collector.field(node, "property")),
            None => Expr::Opaque,
        },
        "subscript_expression" => {
            let object = node.child_by_field_name("object").map(inner);
            let index = node.child_by_field_name("index").map(inner);
            object.zip(index).map_or(Expr::Opaque, |(object, index)| object.index(index))
        }
        "call_expression" | "new_expression" => {
            let call = lower_call(collector, node, depth);
            known_call(call)
        }
        "binary_expression" => {
            let sides = ["left", "right"].map(|side| node.child_by_field_name(side).map(inner));
            let sides = sides.map(|side| side.unwrap_or(Expr::Opaque)).to_vec();
            match collector.field(node, "operator") {
                "+" => join(sides),
                "??" | "||" => any(sides),
                _ => Expr::Opaque,
            }
        }
        "ternary_expression" => {
            let sides = ["consequence", "alternative"]
                .map(|side| node.child_by_field_name(side).map(inner));
            any(sides.map(|side| side.unwrap_or(Expr::Opaque)).to_vec())
        }
        "parenthesized_expression" | "await_expression" => {
            parts(node).into_iter().next().map_or(Expr::Opaque, inner)
        }
        "array" => Expr::List(parts(node).into_iter().map(inner).collect()),
        "object" => Expr::Object(entries(collector, node, depth)),
        "arrow_function" | "function_expression" => Expr::Function(node.start_byte()),
        "number" => collector.text(node).parse().map_or(Expr::NotText, Expr::Number),
        "true" | "false" | "null" | "undefined" | "regex" | "class" => Expr::NotText,
        _ => Expr::Opaque,
    }
}

fn literal(quoted: &str) -> String {
    let mut letters = quoted.chars();
    letters.next();
    letters.next_back();
    unescaped(letters.as_str())
}

fn template(collector: &Collector<'_>, node: Node<'_>, depth: usize) -> Expr {
    let mut of = Vec::new();
    let mut from = node.start_byte() + 1;
    let fixed = |range| unescaped(collector.source.get(range).unwrap_or(""));
    for part in parts(node).into_iter().filter(|part| part.kind() == "template_substitution") {
        let before = fixed(from..part.start_byte());
        if !before.is_empty() {
            of.push(Expr::text(before));
        }
        let inside = part.named_child(0);
        of.push(inside.map_or(Expr::Opaque, |inside| lower(collector, inside, depth + 1)));
        from = part.end_byte();
    }
    let rest = fixed(from..node.end_byte().saturating_sub(1));
    if !rest.is_empty() {
        of.push(Expr::text(rest));
    }
    join(of)
}

fn entries(collector: &Collector<'_>, node: Node<'_>, depth: usize) -> Vec<Entry> {
    let inner = |child: Node<'_>| lower(collector, child, depth + 1);
    let entry = |part: Node<'_>| match part.kind() {
        "pair" => {
            let key = part.child_by_field_name("key")?;
            let value = part.child_by_field_name("value").map_or(Expr::Opaque, inner);
            let name = match key.kind() {
                "property_identifier" | "number" => Expr::text(collector.text(key)),
                "computed_property_name" => key.named_child(0).map_or(Expr::Opaque, inner),
                _ => inner(key),
            };
            Some(Entry { key: Some(name), span: key.byte_range(), value })
        }
        "shorthand_property_identifier" => {
            let name = collector.text(part);
            Some(Entry::new(name, part.byte_range(), Expr::name(part.start_byte(), name)))
        }
        "spread_element" => {
            let value = part.named_child(0).map_or(Expr::Opaque, inner);
            Some(Entry { key: None, span: part.byte_range(), value })
        }
        "method_definition" => {
            let name = part.child_by_field_name("name")?;
            let value = Expr::Function(part.start_byte());
            Some(Entry::new(collector.text(name), name.byte_range(), value))
        }
        _ => None,
    };
    parts(node).into_iter().filter_map(entry).collect()
}

fn lower_call(collector: &Collector<'_>, node: Node<'_>, depth: usize) -> Call {
    let part = if node.kind() == "new_expression" { "constructor" } else { "function" };
    let function = node.child_by_field_name(part);
    let callee = function.map_or(Expr::Opaque, |callee| lower(collector, callee, depth + 1));
    let listed = node.child_by_field_name("arguments").map(parts).unwrap_or_default();
    let arguments = listed.into_iter().map(|argument| Argument {
        keyword: None,
        span: argument.byte_range(),
        value: lower(collector, argument, depth + 1),
    });
    let shape = shape_of(&callee);
    let mut call = plain_call(node.byte_range(), callee, arguments.collect(), shape);
    call.chain = function.map(|callee| chain(collector, callee)).unwrap_or_default();
    call
}

/// The names of the calls that the receiver of a callee is made of.
fn chain(collector: &Collector<'_>, callee: Node<'_>) -> Vec<Box<str>> {
    let mut names = Vec::new();
    let mut next = callee.child_by_field_name("object");
    while let Some(node) = next.filter(|_| names.len() < CHAIN_CALLS_MAX) {
        next = match node.kind() {
            "call_expression" => {
                let function = node.child_by_field_name("function");
                let property = function.map(|function| {
                    let property = function.child_by_field_name("property");
                    property.unwrap_or(function)
                });
                names.extend(property.map(|property| collector.text(property).into()));
                function.and_then(|function| function.child_by_field_name("object"))
            }
            "member_expression" => node.child_by_field_name("object"),
            "parenthesized_expression" | "await_expression" => node.named_child(0),
            _ => None,
        };
    }
    names
}

/// Calls whose value is known without looking at anybody's code.
fn known_call(mut call: Call) -> Expr {
    let first = |call: &mut Call| {
        if call.arguments.is_empty() { Expr::Opaque } else { call.arguments.swap_remove(0).value }
    };
    match (call.receiver().as_deref(), call.name()) {
        (None, Some("require")) => match first(&mut call) {
            Expr::Text(specifier) => Expr::Module(module_named(&specifier)),
            _ => Expr::Opaque,
        },
        (Some("Object"), Some("freeze" | "seal")) => first(&mut call),
        _ => Expr::Call(Box::new(call)),
    }
}
