//! Random schemas and values. Small alphabets, so that keywords meet.

use serde_json::{Map, Value, json};

/// A small generator of our own (xorshift64*): the same seed gives the same cases for ever.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(bits).unwrap() % bound
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];
const NAMES: [&str; 4] = ["a", "b", "c", "ab"];
const PATTERNS: [&str; 17] = [
    "^a",
    "b$",
    "^[ab]*$",
    "^a?b?$",
    "c",
    "^.$",
    "^(?!a)",
    "^(a|b)+c?$",
    "[^a]",
    "^a.*b$",
    "^x{1,2}$",
    "^$",
    r"\bb",
    "(?<!a)b",
    "^(?:(?!bc)[a-c])*$",
    "(?i)AB",
    "a{",
];
const FORMATS: [&str; 3] = ["date", "ipv4", "uuid"];

/// A schema document, with definitions that may refer to themselves.
pub(crate) fn document(random: &mut Random) -> Value {
    let mut root = schema(random, 3);
    if let Value::Object(map) = &mut root
        && (random.chance(40) || map.iter().any(|(_, v)| v.to_string().contains("$defs")))
    {
        let defs = json!({"d": definition(random), "e": definition(random)});
        map.insert("$defs".to_owned(), defs);
    }
    if root.to_string().contains("#/$defs") && root.get("$defs").is_none() {
        root =
            json!({"allOf": [root], "$defs": {"d": definition(random), "e": definition(random)}});
    }
    root
}

/// Something that may refer to itself, but only from within.
fn definition(random: &mut Random) -> Value {
    let inner = schema(random, 1);
    match random.below(4) {
        0 => json!({"type": "object", "properties": {"a": inner}}),
        1 => {
            json!({"type": ["object", "string"], "properties": {"a": {"$ref": "#/$defs/d"}, "b": inner}})
        }
        2 => json!({"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/e"}, inner]}}),
        _ => json!({"type": ["string", "integer"], "maxLength": 2}),
    }
}

/// A schema of at most this depth.
pub(crate) fn schema(random: &mut Random, depth: usize) -> Value {
    if random.chance(6) {
        return Value::Bool(random.chance(70));
    }
    let mut map = Map::new();
    let count = 1 + random.below(3);
    let focus = random.below(6);
    for _ in 0..count {
        match if random.chance(70) { focus } else { random.below(6) } {
            0 => values(random, &mut map),
            1 => numbers(random, &mut map),
            2 => strings(random, &mut map),
            3 => arrays(random, &mut map, depth),
            4 => objects(random, &mut map, depth),
            _ => logic(random, &mut map, depth),
        }
    }
    Value::Object(map)
}

fn values(random: &mut Random, map: &mut Map<String, Value>) {
    match random.below(4) {
        0 | 1 => map.insert("type".to_owned(), json!(random.pick(&TYPES))),
        2 => {
            let first = random.below(6);
            map.insert("type".to_owned(), json!([TYPES[first], TYPES[first + 1]]))
        }
        _ if random.chance(70) => {
            let mut list: Vec<Value> = Vec::new();
            for _ in 0..=random.below(4) {
                let one = value(random, 1);
                if !list.contains(&one) {
                    list.push(one);
                }
            }
            map.insert("enum".to_owned(), Value::Array(list))
        }
        _ => map.insert("const".to_owned(), value(random, 1)),
    };
}

fn numbers(random: &mut Random, map: &mut Map<String, Value>) {
    let keys = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
    let key = *random.pick(&keys);
    let bound = match key {
        "multipleOf" => {
            random.pick(&[json!(1), json!(2), json!(3), json!(0.5), json!(1.5), json!(0.1)]).clone()
        }
        _ => random.pick(&[json!(-1), json!(0), json!(1), json!(2), json!(2.5), json!(5)]).clone(),
    };
    map.insert(key.to_owned(), bound);
}

fn strings(random: &mut Random, map: &mut Map<String, Value>) {
    match random.below(5) {
        0 => map.insert("minLength".to_owned(), json!(random.below(4))),
        1 => map.insert("maxLength".to_owned(), json!(random.below(4))),
        2 if random.chance(30) => map.insert("format".to_owned(), json!(random.pick(&FORMATS))),
        _ => map.insert("pattern".to_owned(), json!(random.pick(&PATTERNS))),
    };
}

fn arrays(random: &mut Random, map: &mut Map<String, Value>, depth: usize) {
    let deeper = |random: &mut Random| {
        if depth == 0 { json!(true) } else { schema(random, depth - 1) }
    };
    match random.below(10) {
        0 => map.insert("minItems".to_owned(), json!(random.below(4))),
        1 => map.insert("maxItems".to_owned(), json!(random.below(4))),
        2 => map.insert("uniqueItems".to_owned(), json!(random.chance(80))),
        3 | 4 => map.insert("items".to_owned(), deeper(random)),
        5 => {
            let list: Vec<Value> = (0..=random.below(2)).map(|_| deeper(random)).collect();
            map.insert("prefixItems".to_owned(), Value::Array(list))
        }
        6 => map.insert("contains".to_owned(), deeper(random)),
        7 => map.insert("minContains".to_owned(), json!(random.below(3))),
        8 => map.insert("maxContains".to_owned(), json!(random.below(3))),
        _ => map.insert("unevaluatedItems".to_owned(), deeper(random)),
    };
}

fn objects(random: &mut Random, map: &mut Map<String, Value>, depth: usize) {
    let deeper = |random: &mut Random| {
        if depth == 0 { json!(true) } else { schema(random, depth - 1) }
    };
    let named = |random: &mut Random, keys: &[&str]| {
        let mut table = Map::new();
        for _ in 0..=random.below(2) {
            table.insert((*random.pick(keys)).to_owned(), deeper(random));
        }
        Value::Object(table)
    };
    match random.below(13) {
        0 => map.insert("minProperties".to_owned(), json!(random.below(3))),
        1 => map.insert("maxProperties".to_owned(), json!(random.below(3))),
        2 | 3 => {
            let first = random.below(4);
            let list = if random.chance(60) {
                json!([NAMES[first]])
            } else {
                json!([NAMES[first], NAMES[(first + 1) % 4]])
            };
            map.insert("required".to_owned(), list)
        }
        4..=6 => map.insert("properties".to_owned(), named(random, &NAMES)),
        7 => map.insert("patternProperties".to_owned(), named(random, &PATTERNS)),
        8 => map.insert("additionalProperties".to_owned(), deeper(random)),
        9 => map.insert("propertyNames".to_owned(), deeper(random)),
        10 => map.insert(
            "dependentRequired".to_owned(),
            json!({*random.pick(&NAMES): [random.pick(&NAMES)]}),
        ),
        11 => map.insert("dependentSchemas".to_owned(), named(random, &NAMES)),
        _ => map.insert("unevaluatedProperties".to_owned(), deeper(random)),
    };
}

fn logic(random: &mut Random, map: &mut Map<String, Value>, depth: usize) {
    if depth == 0 {
        return values(random, map);
    }
    let key = *random.pick(&["allOf", "anyOf", "oneOf", "not", "if", "$ref"]);
    match key {
        "not" => {
            map.insert(key.to_owned(), schema(random, depth - 1));
        }
        "if" => {
            for key in ["if", "then", "else"] {
                if key == "if" || random.chance(60) {
                    map.insert(key.to_owned(), schema(random, depth - 1));
                }
            }
        }
        "$ref" => {
            map.insert(key.to_owned(), json!(random.pick(&["#/$defs/d", "#/$defs/e"])));
        }
        _ => {
            let list: Vec<Value> =
                (0..=random.below(3)).map(|_| schema(random, depth - 1)).collect();
            map.insert(key.to_owned(), Value::Array(list));
        }
    }
}

/// A value of at most this depth.
pub(crate) fn value(random: &mut Random, depth: usize) -> Value {
    let kinds = if depth == 0 { 5 } else { 9 };
    match random.below(kinds) {
        0 => Value::Null,
        1 => json!(random.chance(50)),
        2 => random
            .pick(&[json!(0), json!(1), json!(2), json!(3), json!(-1), json!(6), json!(1.0)])
            .clone(),
        3 => random.pick(&[json!(0.5), json!(1.5), json!(2.5), json!(0.1), json!(0.3)]).clone(),
        4 => json!(text(random)),
        5 | 6 => Value::Array((0..random.below(4)).map(|_| value(random, depth - 1)).collect()),
        _ => {
            let mut map = Map::new();
            for _ in 0..random.below(4) {
                let name = if random.chance(80) {
                    (*random.pick(&NAMES)).to_owned()
                } else {
                    text(random)
                };
                map.insert(name, value(random, depth - 1));
            }
            Value::Object(map)
        }
    }
}

fn text(random: &mut Random) -> String {
    (0..random.below(4)).map(|_| *random.pick(&['a', 'b', 'c', 'x', 'é'])).collect()
}

/// A schema that is like another one, but not quite.
pub(crate) fn mutate(random: &mut Random, schema: &Value) -> Value {
    let mut copy = schema.clone();
    for _ in 0..=random.below(2) {
        mutate_once(random, &mut copy, 3);
    }
    copy
}

fn mutate_once(random: &mut Random, schema_: &mut Value, depth: usize) {
    let Value::Object(map) = schema_ else {
        *schema_ = schema(random, 1);
        return;
    };
    let keys: Vec<String> = map.keys().cloned().collect();
    if keys.is_empty() || random.chance(30) {
        let extra = schema(random, depth.min(2));
        if let Value::Object(extra) = extra {
            map.extend(extra);
        }
        return;
    }
    let key = random.pick(&keys).clone();
    if random.chance(25) && key != "$defs" {
        map.remove(&key);
        return;
    }
    match map.get_mut(&key) {
        Some(Value::Array(list))
            if depth > 0 && !list.is_empty() && !matches!(key.as_str(), "type" | "required") =>
        {
            let at = random.below(list.len());
            if key == "enum" {
                if list.len() > 1 {
                    list.remove(at);
                }
            } else {
                mutate_once(random, &mut list[at], depth - 1);
            }
        }
        Some(inner @ Value::Object(_))
            if depth > 0 && !matches!(key.as_str(), "const" | "dependentRequired") =>
        {
            let table = matches!(
                key.as_str(),
                "properties" | "patternProperties" | "$defs" | "dependentSchemas"
            );
            match inner.as_object_mut() {
                Some(inner) if table => {
                    if let Some(one) = inner.values_mut().next() {
                        mutate_once(random, one, depth - 1);
                    }
                }
                _ => mutate_once(random, inner, depth - 1),
            }
        }
        Some(Value::Number(number)) if number.is_u64() => {
            let value = number.as_u64().unwrap() + 1;
            map.insert(key, json!(value));
        }
        _ => {}
    }
}
