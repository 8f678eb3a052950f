//! Checks an expression and turns names into slots. Slots are variables that no expression can
//! write: `$n` the value of a member, `?n` whether it is there, `#n` and `~n` the same of a header,
//! `%n` a field of the event.

use std::collections::HashMap;
use std::sync::Arc;

use cel::IdedExpr;
use cel::common::ast::operators as op;
use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, SelectExpr};
use regex::RegexBuilder;

use super::FilterError;
use super::path::path_of;
use super::plan::{MemberTree, Plan, Weight};
use super::values::Field;
use crate::limits::{FILTER_MEMBERS_MAX, FILTER_NODES_MAX, FILTER_REGEX_BYTES_MAX};

const FUNCTIONS: &[&str] = &[
    op::CONDITIONAL,
    op::LOGICAL_AND,
    op::LOGICAL_OR,
    op::LOGICAL_NOT,
    op::SUBSTRACT,
    op::ADD,
    op::MULTIPLY,
    op::DIVIDE,
    op::MODULO,
    op::EQUALS,
    op::NOT_EQUALS,
    op::GREATER_EQUALS,
    op::LESS_EQUALS,
    op::GREATER,
    op::LESS,
    op::NEGATE,
    op::INDEX,
    op::IN,
    op::NOT_STRICTLY_FALSE,
    "size",
    "startsWith",
    "endsWith",
    "contains",
    "matches",
    "int",
    "uint",
    "double",
    "string",
];

/// The expression with slots, and what fills them.
pub(super) fn plan(tree: &IdedExpr) -> Result<Plan, FilterError> {
    let mut members = MemberTree::default();
    collect(tree, &mut members, &mut Vec::new());
    let mut slots = 0;
    members.number(&mut slots)?;
    let mut rewrite = Rewrite {
        members: &members,
        headers: Vec::new(),
        regexes: HashMap::new(),
        bound: Vec::new(),
        loops: Vec::new(),
        weight: Weight::default(),
    };
    let tree = rewrite.visit(tree)?;
    let Rewrite { headers, regexes, weight, .. } = rewrite;
    Ok(Plan { tree, members, slots, headers, regexes: Arc::new(regexes), weight })
}

/// A path of the payload without `event.` and `payload.`; nothing if it is another name.
fn in_payload<'a>(path: &'a [&'a str]) -> Option<&'a [&'a str]> {
    match path {
        ["payload", rest @ ..] | ["event", "payload", rest @ ..] if !rest.is_empty() => Some(rest),
        _ => None,
    }
}

/// `"name" in headers` or `"name" in payload`: the path of what is asked for.
fn named_inside(call: &CallExpr) -> Option<Vec<&str>> {
    let [name, of] = call.args.as_slice() else {
        return None;
    };
    let Expr::Literal(LiteralValue::String(name)) = &name.expr else {
        return None;
    };
    let mut path = path_of(of).filter(|_| call.func_name == op::IN)?;
    let whole =
        matches!(path.as_slice(), ["headers" | "payload"] | ["event", "headers" | "payload"]);
    path.push(name.inner());
    whole.then_some(path)
}

/// First pass: all members that are named. Whether everything is allowed is for the second.
fn collect(expr: &IdedExpr, members: &mut MemberTree, bound: &mut Vec<String>) {
    if let Some(path) = path_of(expr)
        && path.first().is_none_or(|root| !bound.iter().any(|name| name == root))
    {
        if let Some(member) = in_payload(&path) {
            members.insert(member, true);
        }
        return;
    }
    match &expr.expr {
        Expr::Select(select) => {
            let path = path_of(&select.operand).map(|mut path| {
                path.push(&select.field);
                path
            });
            match path.as_deref().and_then(in_payload) {
                Some(member) if select.test => members.insert(member, false),
                _ => collect(&select.operand, members, bound),
            }
        }
        Expr::Call(call) => {
            if let Some(path) = named_inside(call) {
                in_payload(&path).into_iter().for_each(|member| members.insert(member, false));
                return;
            }
            call.target.iter().for_each(|target| collect(target, members, bound));
            call.args.iter().for_each(|arg| collect(arg, members, bound));
        }
        Expr::List(list) => list.elements.iter().for_each(|one| collect(one, members, bound)),
        Expr::Comprehension(each) => {
            collect(&each.iter_range, members, bound);
            let before = bound.len();
            bound.extend([each.iter_var.clone(), each.accu_var.clone()]);
            for part in [&each.accu_init, &each.loop_cond, &each.loop_step, &each.result] {
                collect(part, members, bound);
            }
            bound.truncate(before);
        }
        _ => {}
    }
}

struct Rewrite<'a> {
    members: &'a MemberTree,
    headers: Vec<String>,
    regexes: HashMap<String, regex::Regex>,
    bound: Vec<String>,
    loops: Vec<String>,
    weight: Weight,
}

impl Rewrite<'_> {
    fn visit(&mut self, expr: &IdedExpr) -> Result<IdedExpr, FilterError> {
        self.count()?;
        if let Some(path) = path_of(expr)
            && !self.is_bound(path.first().copied().unwrap_or_default())
        {
            return self.name(expr.id, &path);
        }
        let rewritten = match &expr.expr {
            Expr::Literal(_) | Expr::Ident(_) => expr.expr.clone(),
            Expr::Select(select) => self.select(expr.id, select)?,
            Expr::Call(call) => match named_inside(call) {
                Some(path) => self.presence(expr.id, &path)?,
                None => Expr::Call(self.call(call)?),
            },
            Expr::List(list) => {
                let mut list = list.clone();
                if !list.optional_indices.is_empty() {
                    return Err(FilterError::Unsupported("an optional element"));
                }
                for element in &mut list.elements {
                    *element = self.visit(element)?;
                }
                Expr::List(list)
            }
            Expr::Comprehension(each) => Expr::Comprehension(Box::new(self.each(each)?)),
            Expr::Map(_) => return Err(FilterError::Unsupported("a map")),
            Expr::Struct(_) => return Err(FilterError::Unsupported("a struct")),
            Expr::Unspecified => return Err(FilterError::Unsupported("nothing")),
        };
        Ok(IdedExpr { id: expr.id, expr: rewritten })
    }

    fn count(&mut self) -> Result<(), FilterError> {
        let weight = &mut self.weight;
        *(if self.loops.is_empty() { &mut weight.once } else { &mut weight.looped }) += 1;
        if weight.once + weight.looped > FILTER_NODES_MAX as u64 {
            return Err(FilterError::TooLarge);
        }
        Ok(())
    }

    fn is_bound(&self, name: &str) -> bool {
        self.bound.iter().any(|bound| bound == name)
    }

    /// A name of the event: a slot, and what is left of the path when a value above it is taken.
    fn name(&mut self, id: u64, path: &[&str]) -> Result<IdedExpr, FilterError> {
        if let Some(member) = in_payload(path) {
            let (slot, _, rest) = self.members.find(member).ok_or(FilterError::WholePayload)?;
            let slot = IdedExpr { id, expr: Expr::Ident(format!("${slot}")) };
            return Ok(rest.iter().fold(slot, |of, field| member_of(id, of, field, false)));
        }
        let path = path.strip_prefix(&["event"]).unwrap_or(path);
        let name = match path {
            ["headers", name] => format!("#{}", self.header(name)?),
            [] | ["payload" | "headers"] => return Err(FilterError::WholePayload),
            ["headers", ..] => return Err(FilterError::NoMembers("a header")),
            [name] => match Field::named(name) {
                Some(field) => format!("%{}", field as usize),
                None => return Err(unknown(name)),
            },
            [name, ..] if Field::named(name).is_some() => {
                return Err(FilterError::NoMembers("a field of the event"));
            }
            [name, ..] => return Err(unknown(name)),
        };
        Ok(IdedExpr { id, expr: Expr::Ident(name) })
    }

    fn header(&mut self, name: &str) -> Result<usize, FilterError> {
        if let Some(known) = self.headers.iter().position(|header| header == name) {
            return Ok(known);
        }
        if self.headers.len() == FILTER_MEMBERS_MAX {
            return Err(FilterError::TooManyMembers(FILTER_MEMBERS_MAX));
        }
        self.headers.push(name.to_owned());
        Ok(self.headers.len() - 1)
    }

    /// `has(...)`, or a member of something computed.
    fn select(&mut self, id: u64, select: &SelectExpr) -> Result<Expr, FilterError> {
        let path = path_of(&select.operand);
        let path = path.filter(|path| !self.is_bound(path.first().copied().unwrap_or_default()));
        if let Some(mut path) = path.filter(|_| select.test) {
            path.push(&select.field);
            return self.presence(id, &path);
        }
        let operand = self.visit(&select.operand)?;
        Ok(member_of(id, operand, &select.field, select.test).expr)
    }

    fn presence(&mut self, id: u64, path: &[&str]) -> Result<Expr, FilterError> {
        if let Some(member) = in_payload(path) {
            let (slot, value, rest) = self.members.find(member).ok_or(FilterError::WholePayload)?;
            let Some((last, between)) = rest.split_last() else {
                return Ok(Expr::Ident(format!("?{slot}")));
            };
            debug_assert!(value, "only a value has members of its own");
            let slot = IdedExpr { id, expr: Expr::Ident(format!("${slot}")) };
            let of = between.iter().fold(slot, |of, field| member_of(id, of, field, false));
            return Ok(member_of(id, of, last, true).expr);
        }
        match path.strip_prefix(&["event"]).unwrap_or(path) {
            ["headers", name] => Ok(Expr::Ident(format!("~{}", self.header(name)?))),
            [name, ..] => Err(unknown(name)),
            [] => Err(FilterError::WholePayload),
        }
    }

    fn call(&mut self, call: &CallExpr) -> Result<CallExpr, FilterError> {
        if !FUNCTIONS.contains(&call.func_name.as_str()) {
            return Err(FilterError::UnknownFunction(call.func_name.chars().take(64).collect()));
        }
        if call.func_name == "matches" {
            self.regex(call)?;
        }
        let target = match &call.target {
            Some(target) => Some(Box::new(self.visit(target)?)),
            None => None,
        };
        let args = call.args.iter().map(|arg| self.visit(arg)).collect::<Result<_, _>>()?;
        Ok(CallExpr { func_name: call.func_name.clone(), target, args })
    }

    fn regex(&mut self, call: &CallExpr) -> Result<(), FilterError> {
        let Some(Expr::Literal(LiteralValue::String(text))) = call.args.last().map(|arg| &arg.expr)
        else {
            return Err(FilterError::Regex("it is computed".into()));
        };
        let compiled = RegexBuilder::new(text.inner())
            .size_limit(FILTER_REGEX_BYTES_MAX)
            .dfa_size_limit(FILTER_REGEX_BYTES_MAX)
            .build();
        let compiled = compiled.map_err(|error| {
            FilterError::Regex(error.to_string().lines().last().unwrap_or_default().to_owned())
        })?;
        self.regexes.insert(text.inner().to_owned(), compiled);
        Ok(())
    }

    fn each(&mut self, each: &ComprehensionExpr) -> Result<ComprehensionExpr, FilterError> {
        if let Some(outer) = self.loops.last() {
            let root = path_of(&each.iter_range).and_then(|path| path.first().copied());
            if root != Some(outer.as_str()) {
                return Err(FilterError::NestedLoop);
            }
        }
        if each.iter_var2.is_some() {
            return Err(FilterError::Unsupported("a loop with two variables"));
        }
        let names = [each.iter_var.as_str(), "payload", "headers", "event"];
        let (own, reserved) = names.split_first().unwrap_or((&"", &[]));
        if reserved.contains(own) || Field::named(own).is_some() {
            return Err(FilterError::Unsupported("a loop variable with the name of a field"));
        }
        if let Expr::List(list) = &each.iter_range.expr {
            let longest = &mut self.weight.literal_elements;
            *longest = (*longest).max(list.elements.len() as u64);
        }
        let iter_range = self.visit(&each.iter_range)?;
        self.bound.extend([each.iter_var.clone(), each.accu_var.clone()]);
        self.loops.push(each.iter_var.clone());
        let accu_init = self.visit(&each.accu_init)?;
        let loop_cond = self.visit(&each.loop_cond)?;
        let loop_step = self.visit(&each.loop_step)?;
        let result = self.visit(&each.result)?;
        self.loops.pop();
        self.bound.truncate(self.bound.len().saturating_sub(2));
        let (iter_var, accu_var) = (each.iter_var.clone(), each.accu_var.clone());
        Ok(ComprehensionExpr {
            iter_range,
            iter_var,
            iter_var2: None,
            accu_var,
            accu_init,
            loop_cond,
            loop_step,
            result,
        })
    }
}

fn unknown(name: &str) -> FilterError {
    FilterError::UnknownName(name.chars().take(64).collect())
}

fn member_of(id: u64, operand: IdedExpr, field: &str, test: bool) -> IdedExpr {
    let select = SelectExpr { operand: Box::new(operand), field: field.to_owned(), test };
    IdedExpr { id, expr: Expr::Select(select) }
}
