//! JavaScript and JSX: what is common with TypeScript, and CommonJS exports.

use tree_sitter::Node;

use super::collector::Collector;
use super::ecmascript;

pub(super) fn collect(collector: &mut Collector<'_>, root: Node<'_>) {
    collector.children(root, ecmascript::visit);
}
