//! The description of the interface, made from the same table as the router.

use futures_util::FutureExt;
use serde_json::{Map, Value, json};

use super::answer;
use super::endpoint::{Endpoint, Entrance, Guard, Verb};
use super::{endpoints, shapes};
use crate::rejection::Code;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/openapi.json",
    guard: Guard::Open,
    summary: "This description.",
    query: &[],
    act: |call| async move { answer::json(200, &document(call.entrance)) }.boxed(),
};

/// OpenAPI 3.1, of what is there for those who come in by this entrance.
pub(crate) fn document(entrance: Entrance) -> Value {
    let mut paths = Map::new();
    for endpoint in endpoints().into_iter().filter(|one| entrance.serves(one.guard)) {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(endpoint.method.name().into(), operation(&endpoint));
        }
    }
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Promethean",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
            "schemas": { "Problem": {
                "type": "object",
                "required": ["type", "title", "status", "code", "detail", "instance", "retryable"],
                "properties": {
                    "type": { "type": "string", "format": "uri" },
                    "title": { "type": "string" },
                    "status": { "type": "integer" },
                    "code": { "type": "string", "enum": codes },
                    "detail": { "type": "string" },
                    "instance": { "type": "string" },
                    "retryable": { "type": "boolean" },
                    "retry_ms": { "type": "integer" },
                },
            } },
        },
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let mut parameters: Vec<Value> = in_path(endpoint.path)
        .map(|name| {
            let schema = shapes::in_path(endpoint, name);
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect();
    parameters.extend(endpoint.query.iter().map(|name| {
        if *name == "*" {
            return shapes::fields();
        }
        let (schema, needed) = shapes::in_query(endpoint, name);
        json!({ "name": name, "in": "query", "required": needed, "schema": schema })
    }));
    let security = match endpoint.guard {
        Guard::Known | Guard::Server(_) | Guard::Topics(_) => json!([{ "bearer": [] }]),
        Guard::Open | Guard::Frames => json!([]),
    };
    let problem = refusal(endpoint);
    let mut operation = json!({
        "security": security,
        "operationId": identifier(endpoint),
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": { "2XX": success(endpoint), "4XX": problem, "5XX": problem },
    });
    if let (Some((schema, needed)), Some(operation)) =
        (shapes::body(endpoint), operation.as_object_mut())
    {
        let content = json!({ "application/json": { "schema": schema } });
        operation.insert("requestBody".into(), json!({ "required": needed, "content": content }));
    }
    operation
}

fn success(endpoint: &Endpoint) -> Value {
    let of = |kind: &'static str| (kind.to_owned(), json!({}));
    let content: Map<String, Value> = shapes::answers(endpoint).into_iter().map(of).collect();
    json!({ "description": "Done", "content": content })
}

fn refusal(endpoint: &Endpoint) -> Value {
    let of = |kind: &'static str| {
        let problem = kind == "application/problem+json";
        let schema = if problem {
            json!({ "$ref": "#/components/schemas/Problem" })
        } else {
            json!({ "type": "object", "required": ["error_code", "message"] })
        };
        (kind.to_owned(), json!({ "schema": schema }))
    };
    let content: Map<String, Value> = shapes::refusals(endpoint).into_iter().map(of).collect();
    json!({ "description": "A refusal, as a problem document", "content": content })
}

fn in_path(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn identifier(endpoint: &Endpoint) -> String {
    let words = endpoint.path.replace(['/', '-', '.', '{', '}'], " ");
    let words: Vec<&str> =
        std::iter::once(endpoint.method.name()).chain(words.split_whitespace()).collect();
    words.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_resource_is_described_once() {
        let document = document(Entrance::Whole);
        let names: HashSet<String> = endpoints().iter().map(identifier).collect();
        assert_eq!(names.len(), endpoints().len());
        for endpoint in endpoints() {
            assert!(document["paths"][endpoint.path][endpoint.method.name()].is_object());
            assert!(endpoint.summary.ends_with('.'), "{}", endpoint.path);
        }
    }

    /// What is open to strangers is decided here, and nowhere else.
    #[test]
    fn only_these_are_open() {
        let open: Vec<&str> = endpoints()
            .iter()
            .filter(|endpoint| endpoint.guard == Guard::Open)
            .map(|endpoint| endpoint.path)
            .collect();
        assert_eq!(open, ["/livez", "/healthz", "/readyz", "/openapi.json"]);
    }
}
