use std::sync::Arc;

use rusqlite::{Connection, params_from_iter};

use super::filter::{Filter, QueryError, Value, unknown};
use super::page_token::{PageToken, PageTokenError};
use crate::projection::database::{COLUMNS, DatabaseError, read_row};
use crate::projection::document::Document;
use crate::projection::error::ViewError;
use crate::projection::view::View;
use crate::projection::view_store::StoredRow;
use crate::projection::views::Projection;

/// Conditions of one query.
const FILTERS_MAX: usize = 16;
/// Documents of a page, unless asked otherwise.
const LIMIT_DEFAULT: usize = 100;
/// Documents of a page, at most.
const LIMIT_MAX: usize = 1_000;

/// By what documents are sorted. Those with the same value are sorted by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sort {
    /// `_key`, `_ts`, or a declared field: safe in SQL.
    column: String,
    is_descending: bool,
}

/// A query over the documents of a view.
#[derive(Debug, Clone, PartialEq)]
pub struct ListQuery {
    filters: Vec<Filter>,
    sort: Sort,
    limit: usize,
    after: Option<PageToken>,
}

/// Some documents, and where to go on.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DocumentPage {
    /// The documents.
    pub documents: Vec<Document>,
    /// The token of the next page, if there is one.
    pub next: Option<String>,
}

impl ListQuery {
    /// Reads a query: `limit`, `sort` (with `-` for descending) and `page`; everything else is a
    /// condition on a declared field.
    pub fn parse<'a>(
        view: &View,
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, QueryError> {
        let sort = Sort { column: "_key".into(), is_descending: false };
        let mut query = Self { filters: Vec::new(), sort, limit: LIMIT_DEFAULT, after: None };
        let mut page = None;
        for (name, value) in parameters {
            match name {
                "limit" => query.limit = limit(value)?,
                "sort" => query.sort = Sort::parse(view, value)?,
                "page" => page = Some(PageToken::decode(value)?),
                _ => query.filters.push(Filter::parse(view, name, value)?),
            }
        }
        if query.filters.len() > FILTERS_MAX {
            return Err(QueryError::Limit(format!("more than {FILTERS_MAX} conditions")));
        }
        if let Some(token) = page {
            if token.query != query.fingerprint(view) {
                return Err(PageTokenError::OtherQuery.into());
            }
            query.after = Some(token);
        }
        Ok(query)
    }

    /// A number that is another one for another query.
    pub(super) fn fingerprint(&self, view: &View) -> u64 {
        let filters = serde_json::to_string(&self.filters).unwrap_or_default();
        let Sort { column, is_descending } = &self.sort;
        let text = format!("{}\n{filters}\n{column}\n{is_descending}", view.name);
        xxhash_rust::xxh3::xxh3_64(text.as_bytes())
    }

    /// The query as SQL, with its values apart. Names in it are declared ones.
    fn sql(&self, table: &str) -> (String, Vec<Value>) {
        let mut values = Vec::new();
        let mut conditions = Vec::new();
        for filter in &self.filters {
            values.push(filter.value.clone());
            let (field, comparison) = (&filter.field, filter.comparison.sql());
            conditions.push(format!("\"{field}\" {comparison} ?{}", values.len()));
        }
        if let Some(after) = &self.after {
            conditions.push(self.sort.after(after, &mut values));
        }
        let filter = match conditions.is_empty() {
            true => String::new(),
            false => format!("WHERE {}", conditions.join(" AND ")),
        };
        let column = &self.sort.column;
        let direction = if self.sort.is_descending { "DESC" } else { "ASC" };
        let order = match column.as_str() {
            "_key" => format!("_key {direction}"),
            _ => format!("\"{column}\" {direction}, _key {direction}"),
        };
        // One more than asked for tells whether there are more.
        let limit = self.limit + 1;
        let sql = format!(
            "SELECT {COLUMNS}, \"{column}\" FROM \"{table}\" {filter} ORDER BY {order} LIMIT {limit}"
        );
        (sql, values)
    }

    /// What must be so of a document.
    pub fn filters(&self) -> &[Filter] {
        &self.filters
    }

    /// By what documents are sorted.
    pub const fn sort(&self) -> &Sort {
        &self.sort
    }

    /// How many documents there are on a page, at most.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Where the page before ended.
    pub const fn after(&self) -> Option<&PageToken> {
        self.after.as_ref()
    }

    /// Runs it on a table of SQLite.
    pub(crate) fn run(
        &self,
        connection: &Connection,
        table: &str,
    ) -> Result<Vec<(StoredRow, Value)>, DatabaseError> {
        let (sql, values) = self.sql(table);
        let mut statement = connection.prepare_cached(&sql)?;
        let mut found = statement.query(params_from_iter(values))?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            let sorted_by = match row.get_ref(7)? {
                rusqlite::types::ValueRef::Integer(number) => Value::Integer(number),
                rusqlite::types::ValueRef::Real(number) => Value::Number(number),
                rusqlite::types::ValueRef::Text(text) => {
                    Value::Text(String::from_utf8_lossy(text).into_owned())
                }
                _ => Value::Null,
            };
            rows.push((read_row(row)?, sorted_by));
        }
        Ok(rows)
    }
}

fn limit(text: &str) -> Result<usize, QueryError> {
    let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| QueryError::Limit(format!("limit is a number from 1 to {LIMIT_MAX}")))
}

impl Sort {
    /// `_key`, `_ts`, or the name of a declared field.
    pub fn column(&self) -> &str {
        &self.column
    }

    /// Whether the greatest come first.
    pub const fn is_descending(&self) -> bool {
        self.is_descending
    }

    fn parse(view: &View, text: &str) -> Result<Self, QueryError> {
        let (is_descending, name) = match text.strip_prefix('-') {
            Some(name) => (true, name),
            None => (false, text),
        };
        let column = match name {
            "_key" | "_ts" => name.to_owned(),
            _ => view.declared(name).ok_or_else(|| unknown(view, name))?.name.clone(),
        };
        Ok(Self { column, is_descending })
    }

    /// What comes after the end of a page. SQLite sorts what is not there before everything.
    fn after(&self, token: &PageToken, values: &mut Vec<Value>) -> String {
        let column = &self.column;
        let beyond = if self.is_descending { "<" } else { ">" };
        values.push(Value::Text(token.key.clone()));
        let key = format!("_key {beyond} ?{}", values.len());
        if column == "_key" {
            return key;
        }
        if token.value == Value::Null {
            return match self.is_descending {
                true => format!("(\"{column}\" IS NULL AND {key})"),
                false => format!("((\"{column}\" IS NULL AND {key}) OR \"{column}\" IS NOT NULL)"),
            };
        }
        values.push(token.value.clone());
        let value = values.len();
        let missing =
            if self.is_descending { format!(" OR \"{column}\" IS NULL") } else { String::new() };
        format!("(\"{column}\" {beyond} ?{value} OR (\"{column}\" = ?{value} AND {key}){missing})")
    }
}

impl Projection {
    /// Documents of one of its views.
    pub async fn list(&self, view: &str, query: ListQuery) -> Result<DocumentPage, ViewError> {
        let unknown = || ViewError::UnknownView(view.to_owned());
        let view = self.view(view).ok_or_else(unknown)?;
        let limit = query.limit;
        let query = Arc::new(query);
        let mut rows = self.site.database.list(view.clone(), Arc::clone(&query)).await?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows
            .last()
            .filter(|_| has_more)
            .map(|(row, value)| PageToken::after(&query, view, value.clone(), &row.key).encode());
        let documents = self.documents(rows.into_iter().map(|(row, _)| row).collect());
        Ok(DocumentPage { documents, next })
    }
}
