//! What stands between the brackets of Rust macros and attributes, where a syntax tree has only
//! tokens: `define_topic!(Heartbeat, "heartbeat.received")`, `#[event(topic = "…", version = 2)]`,
//! and calls inside of any other macro.

use tree_sitter::Node;

use super::collector::{Collector, join, plain_call};
use super::rust::literal;
use crate::facts::{Argument, Call, CallShape, Entry, Expr, Span};
use crate::limits::EXPRESSION_DEPTH_MAX;

/// `a::b`, `Self::C` and `x.y` as a path.
pub(super) fn path(at: usize, written: &str) -> Expr {
    let parts = written.split("::").map(|part| part.split('<').next().unwrap_or(part).trim());
    Expr::Path { at, parts: parts.filter(|part| !part.is_empty()).map(Into::into).collect() }
}

/// Tokens between the brackets, without the brackets and comments.
fn tokens<'t>(tree: Node<'t>) -> Vec<Node<'t>> {
    let mut cursor = tree.walk();
    let all = tree.children(&mut cursor).filter(|token| !token.kind().ends_with("_comment"));
    let mut all: Vec<Node<'t>> = all.collect();
    if all.len() >= 2 {
        all.remove(0);
        all.pop();
    }
    all
}

/// Arguments by commas; `name = value`, `name: value` and `name => value` are named.
fn arguments(collector: &Collector<'_>, tree: Node<'_>, depth: usize) -> Vec<Argument> {
    let all = tokens(tree);
    let mut arguments = Vec::new();
    for tokens in all.split(|token| collector.text(*token) == ",") {
        let (keyword, value) = match tokens {
            [name, separator, value @ ..]
                if name.kind() == "identifier"
                    && matches!(collector.text(*separator), "=" | ":" | "=>") =>
            {
                (Some(collector.text(*name).into()), value)
            }
            value => (None, value),
        };
        let (Some(first), Some(last)) = (value.first(), value.last()) else {
            continue;
        };
        let span = first.start_byte()..last.end_byte();
        arguments.push(Argument {
            keyword,
            value: expression(collector, value, &span, depth),
            span,
        });
    }
    arguments
}

/// The value of a run of tokens, where it is one literal, path, or macro that makes a text.
fn expression(collector: &Collector<'_>, tokens: &[Node<'_>], span: &Span, depth: usize) -> Expr {
    match tokens {
        _ if depth > EXPRESSION_DEPTH_MAX => Expr::Opaque,
        [only] => match only.kind() {
            "string_literal" | "raw_string_literal" => Expr::text(literal(collector.text(*only))),
            "integer_literal" => collector.text(*only).parse().map_or(Expr::NotText, Expr::Number),
            "identifier" | "self" | "crate" => path(span.start, collector.text(*only)),
            "boolean_literal" | "float_literal" | "char_literal" => Expr::NotText,
            _ => Expr::Opaque,
        },
        [reference, rest @ ..] if collector.text(*reference) == "&" => {
            expression(collector, rest, span, depth + 1)
        }
        [name, bang, tree] if collector.text(*bang) == "!" => {
            made(collector, collector.text(*name), *tree, depth + 1)
        }
        // `X.to_string()`, `"a.b".into()`
        [value @ .., dot, _method, tree]
            if collector.text(*dot) == "." && tree.kind() == "token_tree" =>
        {
            expression(collector, value, span, depth + 1)
        }
        // `Heartbeat { … }`
        [name @ .., tree]
            if tree.kind() == "token_tree" && collector.text(*tree).starts_with('{') =>
        {
            expression(collector, name, span, depth + 1)
        }
        _ => {
            let simple = |token: &Node<'_>| {
                matches!(token.kind(), "identifier" | "self" | "crate" | "super" | "::")
            };
            if !tokens.is_empty() && tokens.iter().all(simple) {
                path(span.start, collector.source.get(span.clone()).unwrap_or(""))
            } else {
                Expr::Opaque
            }
        }
    }
}

/// The value of `format!(…)` and `concat!(…)`.
pub(super) fn value(collector: &Collector<'_>, node: Node<'_>, depth: usize) -> Expr {
    let name = collector.field(node, "macro");
    match token_tree(node) {
        Some(tree) => made(collector, name, tree, depth),
        None => Expr::Opaque,
    }
}

fn token_tree(node: Node<'_>) -> Option<Node<'_>> {
    let mut cursor = node.walk();
    node.children(&mut cursor).find(|child| child.kind() == "token_tree")
}

fn made(collector: &Collector<'_>, name: &str, tree: Node<'_>, depth: usize) -> Expr {
    let arguments = arguments(collector, tree, depth);
    match name {
        "concat" => join(arguments.into_iter().map(|argument| argument.value).collect()),
        "format" | "const_format::formatcp" | "formatcp" => {
            formatted(tree.start_byte(), &arguments)
        }
        "vec" => Expr::List(arguments.into_iter().map(|argument| argument.value).collect()),
        name if collector.settings.defines(name) => {
            let callee = Expr::name(tree.start_byte(), name);
            let span = tree.byte_range();
            Expr::Call(Box::new(plain_call(span, callee, arguments, CallShape::Macro)))
        }
        _ => Expr::Opaque,
    }
}

/// `"{}.{name}.{0}"` with the arguments that follow, or names in scope.
fn formatted(at: usize, arguments: &[Argument]) -> Expr {
    let Some((Argument { value: Expr::Text(format), .. }, values)) = arguments.split_first() else {
        return Expr::Opaque;
    };
    let mut positional = values.iter().filter(|argument| argument.keyword.is_none());
    let mut of = Vec::new();
    let marked = format.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let restored = |text: &str| Expr::text(text.replace('\u{1}', "{").replace('\u{2}', "}"));
    let mut rest = marked.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        let Some((hole, next)) = after.split_once('}') else {
            return Expr::Opaque;
        };
        of.push(restored(before));
        let named = values.iter().find(|value| value.keyword.as_deref() == Some(hole));
        let value = match (hole, named) {
            ("", _) => positional.next().map(|argument| argument.value.clone()),
            (_, Some(argument)) => Some(argument.value.clone()),
            (hole, None) => match hole.parse::<usize>() {
                Ok(index) => values.get(index).map(|argument| argument.value.clone()),
                Err(_) if hole.contains([':', '$']) => None,
                Err(_) => Some(Expr::name(at, hole)),
            },
        };
        of.push(value.unwrap_or(Expr::Opaque));
        rest = next;
    }
    of.push(restored(rest));
    join(of)
}

/// A macro: perhaps one of ours, perhaps one with calls of ours inside.
pub(super) fn invocation(collector: &mut Collector<'_>, node: Node<'_>) {
    let Some(tree) = token_tree(node) else {
        return;
    };
    let name = collector.field(node, "macro");
    let name = name.rsplit("::").next().unwrap_or(name);
    used(collector, name, node.start_byte(), tree);
}

fn used(collector: &mut Collector<'_>, name: &str, at: usize, tree: Node<'_>) {
    if collector.settings.calls.contains_key(name) {
        let arguments = arguments(collector, tree, 0);
        if collector.settings.defines(name) {
            bind_defined(collector, &arguments);
        }
        let callee = Expr::name(at, name);
        let span = at..tree.end_byte();
        collector.call(plain_call(span, callee, arguments, CallShape::Macro));
    }
    collector.deeper(tree, |collector| inside(collector, tree));
}

/// `define_topic!(Heartbeat, "heartbeat.received")`, `define_topic! { Heartbeat => "…", … }`
fn bind_defined(collector: &mut Collector<'_>, arguments: &[Argument]) {
    if let [Argument { value: Expr::Path { parts, .. }, .. }, text, ..] = arguments
        && let [name] = parts.as_slice()
    {
        collector.bind(name, text.value.clone());
    }
    for argument in arguments {
        if let (Some(name), Expr::Text(_)) = (&argument.keyword, &argument.value) {
            collector.bind(name, argument.value.clone());
        }
    }
}

/// Calls among the tokens of a macro: a name of ours before brackets.
fn inside(collector: &mut Collector<'_>, tree: Node<'_>) {
    let all = tokens(tree);
    for (index, token) in all.iter().enumerate() {
        if token.kind() != "token_tree" {
            continue;
        }
        let before =
            |back: usize| index.checked_sub(back).and_then(|index| all.get(index)).copied();
        let text = |node: Option<Node<'_>>| node.map_or("", |node| collector.text(node));
        match (text(before(2)), text(before(1))) {
            (name, "!") => {
                let name = name.to_owned();
                let at = before(2).map_or(0, |node| node.start_byte());
                used(collector, &name, at, *token);
                continue;
            }
            (dot, name)
                if collector.source.get(token.start_byte()..=token.start_byte()) == Some("(") =>
            {
                let method = dot == ".";
                token_call(collector, before(1), (name, method), *token);
            }
            _ => {}
        }
        collector.deeper(*token, |collector| inside(collector, *token));
    }
}

fn token_call(
    collector: &mut Collector<'_>,
    name: Option<Node<'_>>,
    (text, method): (&str, bool),
    tree: Node<'_>,
) {
    let Some(name) = name.filter(|_| collector.settings.calls.contains_key(text)) else {
        return;
    };
    let callee = Expr::name(name.start_byte(), text);
    let shape = if method { CallShape::Method } else { CallShape::Function };
    let arguments = arguments(collector, tree, 0);
    let span = name.start_byte()..tree.end_byte();
    collector.call(Call { ..plain_call(span, callee, arguments, shape) });
}

/// `#[event(topic = "heartbeat.received", version = 1)]` before a type: a definition, which also
/// makes the type stand for the topic.
pub(super) fn attribute(collector: &mut Collector<'_>, node: Node<'_>) {
    let Some(attribute) = node.named_child(0) else {
        return;
    };
    let Some(tree) = attribute.child_by_field_name("arguments").or_else(|| token_tree(attribute))
    else {
        return;
    };
    let arguments = arguments(collector, tree, 0);
    let topic = arguments.iter().find(|argument| argument.keyword.as_deref() == Some("topic"));
    let Some(topic) = topic.cloned() else {
        return;
    };
    let mut item = node.next_named_sibling();
    while let Some(next) =
        item.filter(|item| item.kind() == "attribute_item" || item.kind().ends_with("_comment"))
    {
        item = next.next_named_sibling();
    }
    if let Some(item) = item {
        let entry = Entry::new("topic", topic.span.clone(), topic.value.clone());
        collector.bind(collector.field(item, "name"), Expr::Object(vec![entry]));
    }
    let callee = Expr::name(attribute.start_byte(), "topic");
    let span = node.byte_range();
    collector.call(plain_call(span, callee, arguments, CallShape::Attribute));
}

/// The text that `#[serde(rename = "…")]` gives.
pub(super) fn renamed(collector: &Collector<'_>, node: Node<'_>) -> Option<Expr> {
    let attribute = node.named_child(0)?;
    let tree = attribute.child_by_field_name("arguments").or_else(|| token_tree(attribute))?;
    let names = ["rename", "serialize", "topic"];
    let named = |argument: &Argument| {
        argument.keyword.as_deref().is_some_and(|keyword| names.contains(&keyword))
    };
    arguments(collector, tree, 0).into_iter().find(named).map(|argument| argument.value)
}
