//! `multipleOf` for the engine, by exact numbers: the engine's own reckons in doubles, and finds
//! that 9007199254740993 is no multiple of 1.5.

use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, Value};

use crate::compat::exact::{self, Exact};

/// The name of the keyword.
pub(crate) const KEYWORD: &str = "multipleOf";

struct MultipleOf {
    step: Exact,
    /// The same where it is a whole number, as it mostly is.
    whole: Option<u64>,
    written: String,
}

/// Makes the keyword. That it is a number above zero was checked by the meta-schema.
pub(crate) fn keyword<'a>(
    _schema: &'a Map<String, Value>,
    value: &'a Value,
    _place: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    let Value::Number(number) = value else {
        return Err(ValidationError::custom("is not a number"));
    };
    let step = exact::from_number(number);
    let step = step.ok_or_else(|| ValidationError::custom("is a number too large or too small"))?;
    let whole = Some(step.to_integer()).filter(|_| step.is_integer());
    let whole = whole.and_then(|whole| u64::try_from(whole).ok()).filter(|whole| *whole > 0);
    Ok(Box::new(MultipleOf { step, whole, written: number.to_string() }))
}

impl<'i> Keyword<'i> for MultipleOf {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) {
            return Ok(());
        }
        Err(ValidationError::custom(format!("is not a multiple of {}", self.written)))
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        let Value::Number(number) = instance else {
            return true;
        };
        let size = number.as_i64().map(i64::unsigned_abs).or_else(|| number.as_u64());
        match (size, self.whole) {
            (Some(size), Some(whole)) => size.is_multiple_of(whole),
            // A number that cannot be read exactly is none of JSON's.
            _ => exact::from_number(number)
                .is_some_and(|value| exact::is_multiple(&value, &self.step)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{Dialect, Formats, Validator};

    fn multiple(value: &Value, step: &Value) -> bool {
        let schema = json!({"multipleOf": step});
        let rules = Validator::compile(&schema, Dialect::Draft2020, Formats::Annotate).unwrap();
        assert_eq!(rules.is_valid(value), rules.mismatches(value).is_empty(), "{value} {step}");
        rules.is_valid(value)
    }

    #[test]
    fn numbers_are_what_they_are_written_as() {
        for (value, step) in [
            (json!(9_007_199_254_740_993_u64), json!(1.5)),
            (json!(1e300), json!(1e16)),
            (json!(0.3), json!(0.1)),
            (json!(19.99), json!(0.01)),
            (json!(-6), json!(3)),
            (json!(6.0), json!(3)),
            (json!(0), json!(7)),
            (json!(u64::MAX), json!(5)),
            (json!("a"), json!(5)),
        ] {
            assert!(multiple(&value, &step), "{value} of {step}");
        }
        for (value, step) in [
            (json!(9_007_199_254_740_993_u64), json!(2)),
            (json!(0.35), json!(0.1)),
            (json!(7.5), json!(2)),
            (json!(1e-7), json!(1)),
        ] {
            assert!(!multiple(&value, &step), "{value} of {step}");
        }
    }

    #[test]
    fn it_is_told_as_others_are() {
        let schema = json!({"properties": {"a": {"multipleOf": 2}}});
        let rules = Validator::compile(&schema, Dialect::Draft7, Formats::Annotate).unwrap();
        let mismatch = rules.mismatches(&json!({"a": 3})).remove(0);
        assert_eq!((mismatch.keyword.as_str(), mismatch.pointer.as_str()), ("multipleOf", "/a"));
        assert_eq!(mismatch.schema_pointer, "/properties/a/multipleOf");
        assert_eq!(mismatch.expected, "is not a multiple of 2");
    }
}
