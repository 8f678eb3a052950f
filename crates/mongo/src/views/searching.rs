//! Queries over views: what SQLite is asked in SQL, in MongoDB's words.

use std::sync::Arc;

use mongodb::bson::raw::{RawBsonRef, RawDocument};
use mongodb::bson::{Bson, Document, doc};
use promethean::projection::query::{Comparison, Filter, ListQuery, PageToken, Value};
use promethean::projection::view_store::{DatabaseError, StoredRow};
use promethean::projection::{Field, FieldKind, View};

use super::row::{BARE, decode};
use super::{MongoViews, refused};

impl MongoViews {
    pub(super) async fn search(
        &self,
        view: View,
        query: Arc<ListQuery>,
    ) -> Result<Vec<(StoredRow, Value)>, DatabaseError> {
        let (filter, sort) = find(&view, &query);
        // One more than asked for tells whether there are more.
        let limit = i64::try_from(query.limit()).unwrap_or(i64::MAX).saturating_add(1);
        let collection = self.collection(&view.name);
        let found = collection.find(filter).sort(sort).limit(limit);
        let mut cursor = self.cluster.ask(found).await.map_err(refused)?;
        let mut rows = Vec::new();
        let sorted_by = view.declared(query.sort().column());
        while self.cluster.ask(cursor.advance()).await.map_err(refused)? {
            let document = cursor.current();
            let value = match (query.sort().column(), sorted_by) {
                ("_key", _) => {
                    document.get_str("_key").map_or(Value::Null, |k| Value::Text(k.into()))
                }
                ("_ts", _) => document.get_i64("_ts").map_or(Value::Null, Value::Integer),
                (_, Some(field)) => value_at(document, &field.path),
                (_, None) => Value::Null,
            };
            rows.push((decode(document)?, value));
        }
        Ok(rows)
    }
}

/// The query as a filter and an order.
fn find(view: &View, query: &ListQuery) -> (Document, Document) {
    let mut conditions: Vec<Document> = Vec::new();
    for filter in query.filters() {
        if let Some(field) = view.declared(filter.field()) {
            conditions.push(compared(field, filter));
            conditions.extend(no_lists(field));
        }
    }
    let (column, is_descending) = (query.sort().column(), query.sort().is_descending());
    let field = view.declared(column);
    let path = field.map_or_else(|| column.to_owned(), |field| field.path.join("."));
    if let Some(field) = field {
        // What is of another kind has no place in the order: it is not found.
        conditions.push(doc! { path.as_str(): { "$not": { "$type": others(field.kind) } } });
        conditions.extend(no_lists(field));
    }
    if let Some(after) = query.after() {
        conditions.push(beyond(&path, field, is_descending, after));
    }
    let direction = if is_descending { -1 } else { 1 };
    let mut sort = doc! { path.as_str(): direction };
    if column != "_key" {
        sort.insert("_key", direction);
    }
    let filter = match conditions.is_empty() {
        true => Document::new(),
        false => doc! { "$and": conditions },
    };
    (filter, sort)
}

fn compared(field: &Field, filter: &Filter) -> Document {
    let operator = match filter.comparison() {
        Comparison::Eq => "$eq",
        Comparison::Ne => "$ne",
        Comparison::Lt => "$lt",
        Comparison::Le => "$lte",
        Comparison::Gt => "$gt",
        Comparison::Ge => "$gte",
    };
    let value = bson(filter.value(), Some(field.kind));
    let path = field.path.join(".");
    doc! { path: { operator: value, "$type": kind(field.kind) } }
}

/// MongoDB looks into lists; a field of a view is not in one. And a value that is no object has no
/// members, also not one of the name that it is kept under.
fn no_lists(field: &Field) -> Vec<Document> {
    let mut conditions = Vec::new();
    for end in 1..=field.path.len() {
        let path = field.path.get(..end).unwrap_or_default().join(".");
        conditions.push(doc! { path: { "$not": { "$type": "array" } } });
    }
    if field.path.first().is_some_and(|first| first == BARE) {
        conditions.push(doc! { "_meta.bare": null });
    }
    conditions
}

const fn kind(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Text => "string",
        FieldKind::Integer | FieldKind::Number => "number",
        FieldKind::Bool => "bool",
    }
}

/// The kinds that JSON has besides one, and besides null.
fn others(wanted: FieldKind) -> Vec<&'static str> {
    let all = ["string", "number", "bool", "object", "array"];
    all.into_iter().filter(|other| *other != kind(wanted)).collect()
}

fn bson(value: &Value, kind: Option<FieldKind>) -> Bson {
    match (value, kind) {
        (Value::Null, _) => Bson::Null,
        (Value::Integer(number), Some(FieldKind::Bool)) => Bson::Boolean(*number != 0),
        (Value::Integer(number), _) => Bson::Int64(*number),
        (Value::Number(number), _) => Bson::Double(*number),
        (Value::Text(text), _) => Bson::String(text.clone()),
    }
}

/// What comes after the end of a page. What is not there comes before everything.
fn beyond(path: &str, field: Option<&Field>, is_descending: bool, after: &PageToken) -> Document {
    let operator = if is_descending { "$lt" } else { "$gt" };
    let by_key = doc! { "_key": { operator: after.key() } };
    if path == "_key" {
        return by_key;
    }
    let value = bson(after.value(), field.map(|field| field.kind));
    let mut same = doc! { path: value.clone() };
    same.extend(by_key);
    if value == Bson::Null {
        return match is_descending {
            true => same,
            false => doc! { "$or": [same, { path: { "$ne": null } }] },
        };
    }
    let mut ways = vec![doc! { path: { operator: value } }, same];
    if is_descending {
        ways.push(doc! { path: null });
    }
    doc! { "$or": ways }
}

/// The value of a field, of the kinds that pages can be told by.
fn value_at(document: &RawDocument, path: &[String]) -> Value {
    let Some((last, outer)) = path.split_last() else {
        return Value::Null;
    };
    let mut inside = document;
    for part in outer {
        match inside.get(part.as_str()) {
            Ok(Some(RawBsonRef::Document(inner))) => inside = inner,
            _ => return Value::Null,
        }
    }
    match inside.get(last.as_str()) {
        Ok(Some(RawBsonRef::String(text))) => Value::Text(text.to_owned()),
        Ok(Some(RawBsonRef::Int32(number))) => Value::Integer(i64::from(number)),
        Ok(Some(RawBsonRef::Int64(number))) => Value::Integer(number),
        Ok(Some(RawBsonRef::Double(number))) => Value::Number(number),
        Ok(Some(RawBsonRef::Boolean(is))) => Value::Integer(i64::from(is)),
        _ => Value::Null,
    }
}
