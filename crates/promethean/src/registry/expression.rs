//! Conversions between versions: expressions over one value, which they call `value`.

use std::collections::HashMap;

use promethean_schema::{Convert, Operation};
use serde_json::Value;

use crate::expression::Formula;

/// The expressions of one hop, ready to run.
#[derive(Default)]
pub(super) struct Conversions {
    programs: HashMap<String, Formula>,
}

impl std::fmt::Debug for Conversions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.programs.keys()).finish()
    }
}

impl Conversions {
    /// Checks the expressions of a list of operations; what is wrong with the first that is not
    /// good.
    pub(super) fn of(operations: &[Operation]) -> Result<Self, String> {
        let mut programs = HashMap::new();
        for operation in operations {
            if let Operation::Convert { expression, .. } = operation {
                let program = Formula::compile(expression, &["value"]);
                programs.insert(expression.clone(), program.map_err(|error| error.to_string())?);
            }
        }
        Ok(Self { programs })
    }
}

impl Convert for Conversions {
    fn convert(&self, expression: &str, value: &Value) -> Result<Value, String> {
        let program = self.programs.get(expression).ok_or("the expression was never checked")?;
        program.evaluate(&[value])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CONVERT_VALUE_BYTES_MAX;
    use serde_json::json;

    fn convert(expression: &str, value: &Value) -> Result<Value, String> {
        let operation =
            Operation::Convert { pointer: "/a".into(), expression: expression.to_owned() };
        Conversions::of(&[operation])?.convert(expression, value)
    }

    #[test]
    fn expressions_convert() {
        assert_eq!(convert("double(value) * 2.0", &json!(4)), Ok(json!(8.0)));
        assert_eq!(convert("value / 1024", &json!(4096)), Ok(json!(4)));
        assert_eq!(convert("string(value)", &json!(7)), Ok(json!("7")));
        assert_eq!(convert("value.map(x, x + 1)", &json!([1, 2])), Ok(json!([2, 3])));
        assert_eq!(
            convert("{'was': value}", &json!({"b": [null, true]})),
            Ok(json!({"was": {"b": [null, true]}}))
        );
    }

    #[test]
    fn what_makes_no_sense_or_is_too_much_is_refused() {
        for (expression, value) in [
            ("value +", json!(1)),
            ("value * 2", json!("text")),
            ("other", json!(1)),
            ("value.map(x, value.map(y, x + y))", json!([1])),
            ("1.0 / 0.0", json!(1)),
            ("value", json!("x".repeat(CONVERT_VALUE_BYTES_MAX + 1))),
            (&"(".repeat(900), json!(1)),
            (&"value + ".repeat(200), json!(1)),
        ] {
            assert!(convert(expression, &value).is_err(), "{expression}");
        }
    }
}
