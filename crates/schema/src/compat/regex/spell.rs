//! Expressions written out for the engine, in the part of its syntax that means the same to all.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::class::{Class, Range};
use super::parse::{self, Ast};

/// A pattern as the engine is given it: as it is where the engine reads it as ECMA-262 has it, or
/// where we cannot say; respelt otherwise.
pub(crate) fn for_engine(pattern: &str) -> Cow<'_, str> {
    match parse::parse(pattern) {
        Ok(parsed) if !parsed.plain => {
            let mut text = String::with_capacity(pattern.len() * 2);
            spell(&parsed.ast, &mut text);
            Cow::Owned(text)
        }
        _ => Cow::Borrowed(pattern),
    }
}

fn spell(ast: &Ast, text: &mut String) {
    match ast {
        Ast::Empty => text.push_str("(?:)"),
        Ast::Class(class) => spell_class(class, text),
        Ast::Start => text.push('^'),
        Ast::End => text.push('$'),
        Ast::Concat(parts) => parts.iter().for_each(|part| spell_part(part, text)),
        Ast::Alternate(branches) => {
            for (index, branch) in branches.iter().enumerate() {
                if index > 0 {
                    text.push('|');
                }
                spell(branch, text);
            }
        }
        Ast::Repeat { node, min, max } => {
            match node.as_ref() {
                Ast::Class(class) => spell_class(class, text),
                node => grouped("(?:", node, text),
            }
            match (min, max) {
                (0, None) => text.push('*'),
                (1, None) => text.push('+'),
                (0, Some(1)) => text.push('?'),
                (min, None) => push(text, format_args!("{{{min},}}")),
                (min, Some(max)) if min == max => push(text, format_args!("{{{min}}}")),
                (min, Some(max)) => push(text, format_args!("{{{min},{max}}}")),
            }
        }
        Ast::Look { behind, negative, node } => {
            let sign = match (behind, negative) {
                (false, false) => "(?=",
                (false, true) => "(?!",
                (true, false) => "(?<=",
                (true, true) => "(?<!",
            };
            grouped(sign, node, text);
        }
    }
}

/// A part of a sequence: choices need their own group.
fn spell_part(part: &Ast, text: &mut String) {
    match part {
        Ast::Alternate(_) => grouped("(?:", part, text),
        Ast::Concat(parts) => parts.iter().for_each(|part| spell_part(part, text)),
        _ => spell(part, text),
    }
}

fn grouped(open: &str, node: &Ast, text: &mut String) {
    text.push_str(open);
    spell(node, text);
    text.push(')');
}

fn spell_class(class: &Class, text: &mut String) {
    match class.ranges() {
        &[(low, high)] if low == high => push_char(low, text),
        [] => text.push_str(r"[^\s\S]"),
        ranges => {
            // Of a set and its complement the shorter one is easier to read.
            let others = class.negate();
            if others.ranges().is_empty() {
                return text.push_str(r"[\s\S]");
            }
            let negated = others.ranges().len() < ranges.len();
            text.push_str(if negated { "[^" } else { "[" });
            let listed: &[Range] = if negated { others.ranges() } else { ranges };
            for (low, high) in listed {
                push_char(*low, text);
                if low < high {
                    text.push('-');
                    push_char(*high, text);
                }
            }
            text.push(']');
        }
    }
}

/// What means something in an expression, or in brackets.
const SIGNS: &str = r"\.+*?()|[]{}^$#&-~/";

/// A character that stands for itself, in brackets and out of them.
fn push_char(code: u32, text: &mut String) {
    match char::from_u32(code) {
        Some('\n') => text.push_str("\\n"),
        Some('\r') => text.push_str("\\r"),
        // No others: `\<` and `\>` are the ends of a word to the engine.
        Some(c) if SIGNS.contains(c) => {
            text.push('\\');
            text.push(c);
        }
        Some(c) => text.push(c),
        None => {}
    }
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(what);
}
