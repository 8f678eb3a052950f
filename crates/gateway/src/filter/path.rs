//! Members that are named outright: `payload.a["b-c"].d`.

use cel::IdedExpr;
use cel::common::ast::operators::INDEX;
use cel::common::ast::{Expr, LiteralValue};

/// The names of a chain of members, the outermost first; `None` if any part of it is computed.
pub(super) fn path_of(expr: &IdedExpr) -> Option<Vec<&str>> {
    match &expr.expr {
        Expr::Ident(name) => Some(vec![name]),
        Expr::Select(select) if !select.test => {
            let mut path = path_of(&select.operand)?;
            path.push(&select.field);
            Some(path)
        }
        Expr::Call(call) if call.func_name == INDEX => {
            let (of, index) = match (&call.target, call.args.as_slice()) {
                (Some(of), [index]) => (&**of, index),
                (None, [of, index]) => (of, index),
                _ => return None,
            };
            let Expr::Literal(LiteralValue::String(name)) = &index.expr else {
                return None;
            };
            let mut path = path_of(of)?;
            path.push(name.inner());
            Some(path)
        }
        _ => None,
    }
}

/// How deep brackets of any kind are nested, texts aside. Looked at before parsing, since a parser
/// is deep in the stack by the time it finds out.
pub(super) fn depth(source: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let mut quote = None;
    let mut escaped = false;
    for byte in source.bytes() {
        match (quote, byte) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), b'\\') => escaped = true,
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'(' | b'[' | b'{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (None, b')' | b']' | b'}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
    }
    deepest
}
