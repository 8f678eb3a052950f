//! RFC 3339, as CloudEvents write times.

use promethean_event::Timestamp;

const DAY_MS: i64 = 86_400_000;

/// The moment that `2026-11-16T00:21:15.123+01:00` names; none before 1970 or if it is malformed.
pub fn read_time(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_at_checked(10)?;
    let mut parts = date.split('-');
    let (year, month, day) =
        (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    if parts.next().is_some()
        || !(1..=12).contains(&month)
        || !(1..=days(year, month)).contains(&day)
    {
        return None;
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let zone_at = rest.rfind(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at_checked(zone_at)?;
    let millis = epoch_days(year, month, day) * DAY_MS + clock_ms(clock)? - zone_ms(zone)?;
    u64::try_from(millis).ok().map(Timestamp::from_millis)
}

fn clock_ms(clock: &str) -> Option<i64> {
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = whole.split(':');
    let (h, m, s) =
        (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    if parts.next().is_some() || h > 23 || m > 59 || s > 60 || fraction.is_empty() {
        return None;
    }
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
    Some(((h * 60 + m) * 60 + s) * 1000 + thousandths.parse::<i64>().ok()?)
}

fn zone_ms(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (h, m) = rest.split_once(':')?;
    let (h, m) = (digits(h, 2)?, digits(m, 2)?);
    (h <= 23 && m <= 59).then_some(sign * (h * 60 + m) * 60_000)
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let good = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    good.then(|| text.parse().ok()).flatten()
}

fn days(year: i64, month: i64) -> i64 {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar (Hinnant's algorithm).
fn epoch_days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The moment in UTC, with milliseconds.
pub fn write_time(time: Timestamp) -> String {
    let millis = i64::try_from(time.millis()).unwrap_or(i64::MAX);
    let (days, of_day) = (millis.div_euclid(DAY_MS), millis.rem_euclid(DAY_MS));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:03}Z", of_day % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2023-11-14T22:13:20Z", 1_700_000_000_000),
            ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500),
            ("2000-02-29T00:00:00.123456Z", 951_782_400_123),
            ("2024-12-31t23:59:60z", 1_735_689_600_000),
        ] {
            assert_eq!(read_time(text), Some(Timestamp::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "now",
            "2023-11-14",
            "2023-02-29T00:00:00Z",
            "2023-13-01T00:00:00Z",
            "2023-11-14T22:13:20",
            "2023-11-14T22:13Z",
            "2023-11-14T24:00:00Z",
            "2023-11-14T22:13:20.Z",
            "2023-11-14T22:13:20.5xZ",
            "1969-12-31T23:59:59Z",
            "2023-11-14T22:13:20+25:00",
            "+023-11-14T22:13:20Z",
            "ä023-11-14T22:13:20Z",
        ] {
            assert_eq!(read_time(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(millis in 0u64..253_402_300_800_000) {
            let time = Timestamp::from_millis(millis);
            prop_assert_eq!(read_time(&write_time(time)), Some(time));
        }

        #[test]
        fn any_text_is_judged(text in "[0-9TZ:+. -]{0,30}") {
            let _ = read_time(&text);
        }
    }
}
