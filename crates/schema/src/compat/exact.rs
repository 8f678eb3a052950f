//! Exact numbers: what a JSON number says, as a rational, and back again.
//!
//! Floating point would make `multipleOf: 0.1` a matter of luck. A number is read by its shortest
//! decimal form, which is how the validator reads it too.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Pow, ToPrimitive, Zero};
use serde_json::Number;

/// An exact rational number.
pub(crate) type Exact = BigRational;

/// Largest decimal exponent that is expanded; JSON numbers that fit a double stay below it.
const EXPONENT_MAX: i64 = 400;

/// Most fraction digits of a witness; a double cannot be trusted with more.
const FRACTION_DIGITS_MAX: u32 = 17;

/// Reads a JSON number exactly. `None` only for exponents no double has.
pub(crate) fn from_number(number: &Number) -> Option<Exact> {
    if let Some(int) = number.as_i64() {
        return Some(Exact::from_integer(int.into()));
    }
    if let Some(int) = number.as_u64() {
        return Some(Exact::from_integer(int.into()));
    }
    from_decimal(&number.to_string())
}

/// Reads `-12.5e3` and the like.
fn from_decimal(text: &str) -> Option<Exact> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: BigInt = format!("{whole}{fraction}").parse().ok()?;
    let scale = exponent - i64::try_from(fraction.len()).ok()?;
    if scale.abs() > EXPONENT_MAX {
        return None;
    }
    let power = BigInt::from(10).pow(u32::try_from(scale.unsigned_abs()).ok()?);
    Some(if scale >= 0 { Exact::from_integer(digits * power) } else { Exact::new(digits, power) })
}

/// Writes a number that reads back as exactly `value`, if JSON as we parse it has one.
pub(crate) fn to_number(value: &Exact) -> Option<Number> {
    if value.is_integer() {
        let int = value.to_integer();
        if let Some(int) = int.to_i64() {
            return Some(int.into());
        }
        if let Some(int) = int.to_u64() {
            return Some(int.into());
        }
    }
    let float =
        decimal_text(value).and_then(|text| text.parse::<f64>().ok()).or_else(|| value.to_f64())?;
    let number = Number::from_f64(float)?;
    (from_number(&number).as_ref() == Some(value)).then_some(number)
}

/// The finite decimal expansion of `value`, if it has a short one.
fn decimal_text(value: &Exact) -> Option<String> {
    let ten = BigInt::from(10);
    let mut scaled = value.clone();
    let mut digits = 0;
    while !scaled.is_integer() {
        digits += 1;
        if digits > FRACTION_DIGITS_MAX {
            return None;
        }
        scaled *= &ten;
    }
    Some(format!("{}e-{digits}", scaled.to_integer()))
}

/// The least common multiple of two positive rationals: what is a multiple of both.
pub(crate) fn lcm(left: &Exact, right: &Exact) -> Exact {
    use num_integer::Integer;
    let numerator = left.numer().lcm(right.numer());
    let denominator = left.denom().gcd(right.denom());
    Exact::new(numerator, denominator)
}

/// Whether `value` is a whole multiple of `step`; nothing but zero is a multiple of zero.
pub(crate) fn is_multiple(value: &Exact, step: &Exact) -> bool {
    if step.is_zero() {
        return value.is_zero();
    }
    // Not by a quotient: that would be reduced first, which costs far more than the remainder.
    let whole = value.numer() * step.denom();
    (whole % (value.denom() * step.numer())).is_zero()
}

/// How long a number is, in bits: what reckoning with it costs.
pub(crate) fn bits(value: &Exact) -> u64 {
    value.numer().bits() + value.denom().bits()
}

/// One, as an exact number.
pub(crate) fn one() -> Exact {
    Exact::one()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Exact {
        from_number(&serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn a_decimal_is_read_as_written() {
        assert_eq!(read("0.1") * Exact::from_integer(10.into()), one());
        assert_eq!(read("1.0"), one());
        assert_eq!(read("-2.50"), Exact::new((-5).into(), 2.into()));
        assert_eq!(read("1e3"), Exact::from_integer(1000.into()));
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in ["0.1", "-7", "18446744073709551615", "1e300", "0.125", "1e-7"] {
            let value = read(text);
            let number = to_number(&value).unwrap();
            assert_eq!(from_number(&number), Some(value), "{text} became {number}");
        }
        assert_eq!(to_number(&Exact::new(1.into(), 3.into())), None);
    }

    #[test]
    fn the_least_common_multiple_of_fractions() {
        assert_eq!(lcm(&read("0.5"), &read("0.75")), read("1.5"));
        assert!(is_multiple(&read("0.3"), &read("0.1")));
    }
}
