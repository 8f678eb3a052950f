//! What the language modules write into while they walk a tree.

use tree_sitter::Node;

use crate::facts::{
    Argument, Binding, Bound, Call, CallShape, Expr, Facts, Failure, Function, Import, Span,
};
use crate::limits::{BINDINGS_MAX, SYNTAX_DEPTH_MAX};
use crate::settings::Checked;

pub(super) struct Collector<'a> {
    pub(super) source: &'a str,
    pub(super) settings: &'a Checked<'a>,
    pub(super) facts: Facts,
    /// Enclosing scopes, outermost first; whether each is that of a function.
    scopes: Vec<(Span, bool)>,
    depth: usize,
}

impl<'a> Collector<'a> {
    pub(super) fn new(source: &'a str, settings: &'a Checked<'a>) -> Self {
        // One more than the text, so that the end of the file is inside.
        let file = (0..source.len() + 1, true);
        Self { source, settings, facts: Facts::default(), scopes: vec![file], depth: 0 }
    }

    pub(super) fn text(&self, node: Node<'_>) -> &'a str {
        self.source.get(node.byte_range()).unwrap_or("")
    }

    pub(super) fn field(&self, node: Node<'_>, name: &str) -> &'a str {
        node.child_by_field_name(name).map_or("", |child| self.text(child))
    }

    /// Walks the named children with `visit`, unless the tree is too deep.
    pub(super) fn children(&mut self, node: Node<'_>, visit: fn(&mut Self, Node<'_>)) {
        // Most nodes are leaves, and a cursor costs an allocation.
        if node.named_child_count() == 0 {
            return;
        }
        self.deeper(node, |collector| {
            let mut cursor = node.walk();
            for child in node.named_children(&mut cursor) {
                visit(collector, child);
            }
        });
    }

    /// Goes one level down, unless that is too deep: then the file is reported.
    pub(super) fn deeper(&mut self, node: Node<'_>, go: impl FnOnce(&mut Self)) {
        if self.depth < SYNTAX_DEPTH_MAX {
            self.depth += 1;
            go(self);
            self.depth -= 1;
        } else if self.facts.failures.is_empty() {
            let what = format!("is nested more than {SYNTAX_DEPTH_MAX} deep; the rest is not read");
            self.facts.failures.push(Failure { span: node.byte_range(), what });
        }
    }

    pub(super) fn in_scope(&mut self, node: Node<'_>, visit: fn(&mut Self, Node<'_>)) {
        self.scopes.push((node.byte_range(), false));
        self.children(node, visit);
        self.scopes.pop();
    }

    /// Enters the function at `node`: its parameters can be seen in all of it.
    pub(super) fn in_function(
        &mut self,
        node: Node<'_>,
        function: Function,
        visit: fn(&mut Self, Node<'_>),
    ) {
        let start = node.start_byte();
        self.scopes.push((node.byte_range(), true));
        for (index, name) in function.parameters.iter().enumerate() {
            let scope = node.byte_range();
            let value = Bound::Parameter { function: start, index };
            self.bound(name, Binding { scope, value });
        }
        self.facts.functions.insert(start, function);
        self.children(node, visit);
        self.scopes.pop();
    }

    /// Binds in the innermost scope.
    pub(super) fn bind(&mut self, name: &str, value: Expr) {
        let scope = self.scopes.last().map_or(0..0, |(scope, _)| scope.clone());
        self.bound(name, Binding { scope, value: Bound::Value(value) });
    }

    /// Binds in the innermost function or file.
    pub(super) fn bind_in_function(&mut self, name: &str, value: Expr) {
        let function = self.scopes.iter().rev().find(|(_, function)| *function);
        let scope = function.map_or(0..0, |(scope, _)| scope.clone());
        self.bound(name, Binding { scope, value: Bound::Value(value) });
    }

    /// Binds in the whole of `node`.
    pub(super) fn bind_within(&mut self, node: Node<'_>, name: &str, value: Expr) {
        self.bound(name, Binding { scope: node.byte_range(), value: Bound::Value(value) });
    }

    /// A further value for a name: in the scope where it is bound already, if any.
    pub(super) fn assign(&mut self, name: &str, at: usize, value: Expr) {
        let known = self.facts.bindings.get(name).and_then(|bindings| {
            let seen = bindings.iter().filter(|binding| binding.scope.contains(&at));
            seen.min_by_key(|binding| binding.scope.len()).map(|binding| binding.scope.clone())
        });
        match known {
            Some(scope) => self.bound(name, Binding { scope, value: Bound::Value(value) }),
            None => self.bind_in_function(name, value),
        }
    }

    fn bound(&mut self, name: &str, binding: Binding) {
        if name.is_empty() {
            return;
        }
        let bindings = self.facts.bindings.entry(name.into()).or_default();
        match bindings.len() {
            0..BINDINGS_MAX => bindings.push(binding),
            BINDINGS_MAX => bindings.push(Binding { value: Bound::Value(Expr::Opaque), ..binding }),
            _ => {}
        }
    }

    pub(super) fn import(&mut self, local: &str, import: Import) {
        self.facts.imports.insert(local.into(), import);
    }

    pub(super) fn call(&mut self, call: Call) {
        if call.name().is_some() {
            self.facts.calls.push(call);
        }
    }
}

/// A call without a chain or a type.
pub(super) fn plain_call(
    span: Span,
    callee: Expr,
    arguments: Vec<Argument>,
    shape: CallShape,
) -> Call {
    Call { span, callee, arguments, chain: Vec::new(), type_argument: None, shape }
}

/// A method where the callee has a receiver, else a function.
pub(super) fn shape_of(callee: &Expr) -> CallShape {
    match callee {
        Expr::Path { parts, .. } if parts.len() > 1 => CallShape::Method,
        Expr::Member(..) => CallShape::Method,
        _ => CallShape::Function,
    }
}

/// One expression or a choice of several.
pub(super) fn any(mut of: Vec<Expr>) -> Expr {
    match of.len() {
        1 => of.pop().unwrap_or(Expr::Opaque),
        _ => Expr::Any(of),
    }
}

/// Parts of one text; constant neighbours are kept apart, which the resolver does not mind.
pub(super) fn join(mut of: Vec<Expr>) -> Expr {
    match of.as_slice() {
        [] => Expr::text(""),
        [Expr::Text(_)] => of.pop().unwrap_or(Expr::Opaque),
        _ => Expr::Join(of),
    }
}

/// The named children of `node` without comments.
pub(super) fn parts<'t>(node: Node<'t>) -> Vec<Node<'t>> {
    if node.named_child_count() == 0 {
        return Vec::new();
    }
    let mut cursor = node.walk();
    node.named_children(&mut cursor).filter(|child| !child.is_extra()).collect()
}
