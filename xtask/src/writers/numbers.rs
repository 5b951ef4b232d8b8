// SPDX-License-Identifier: GPL-2.0

//! Numbers as people read them. Integers all the way: what is shown is what was measured.

/// Microseconds with three decimals: `15.340`.
pub fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// The same with a sign: `+0.340`, `-0.372`.
pub fn signed_us(ns: i128) -> String {
    let sign = if ns < 0 { '-' } else { '+' };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{:03}", ns / 1000, ns % 1000)
}

/// `part` of `whole` in percent, with a sign and two decimals, rounded half away from zero: `+2.27`. None of nothing.
pub fn percent(part: i128, whole: u64) -> Option<String> {
    let hundredths = divide_rounded(part.checked_mul(10_000)?, i128::from(whole))?;
    let sign = if part < 0 { '-' } else { '+' };
    let hundredths = hundredths.unsigned_abs();
    Some(format!(
        "{sign}{}.{:02}",
        hundredths / 100,
        hundredths % 100
    ))
}

/// A duration in the largest unit that keeps it whole: `15 us`, `110 ms`, `1500 ns`.
pub fn whole(ns: u64) -> String {
    let (divisor, unit) = whole_unit(ns);
    format!("{} {unit}", ns / divisor)
}

/// A range in one unit: `100..200 us`; as [`whole`] where both ends are the same.
pub fn range(from_ns: u64, to_ns: u64) -> String {
    if from_ns == to_ns {
        return whole(from_ns);
    }
    let (divisor, unit) = whole_unit(from_ns).min(whole_unit(to_ns));
    format!("{}..{} {unit}", from_ns / divisor, to_ns / divisor)
}

/// A duration in a sentence, with three decimals and the unit that suits it: `15.340 us`, `28.001 ms`, `1.000 s`.
pub fn spoken(ns: u64) -> String {
    let (divisor, unit) = match ns {
        0..1_000_000 => (1, "us"),
        1_000_000..1_000_000_000 => (1_000, "ms"),
        _ => (1_000_000, "s"),
    };
    // us() shows thousands of what it is given.
    let rounded = ns / divisor + u64::from(ns % divisor >= divisor.div_ceil(2));
    format!("{} {unit}", us(rounded))
}

/// A time of CLOCK_REALTIME: `2026-11-30 22:00:01 UTC`.
pub fn utc(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar. Years begin in March here, so
/// that the leap day is the last one; 146 097 days are 400 years.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, day)
}

/// Nanoseconds in the largest unit that divides `ns`. Zero is `0 ns`.
fn whole_unit(ns: u64) -> (u64, &'static str) {
    [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")]
        .into_iter()
        .find(|(divisor, _)| ns != 0 && ns % divisor == 0)
        .unwrap_or((1, "ns"))
}

fn divide_rounded(dividend: i128, divisor: i128) -> Option<i128> {
    let half = divisor / 2 * dividend.signum();
    dividend.checked_add(half)?.checked_div(divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_have_three_decimals() {
        assert_eq!(us(0), "0.000");
        assert_eq!(us(15_340), "15.340");
        assert_eq!(us(u64::MAX), "18446744073709551.615");
        assert_eq!(signed_us(-372), "-0.372");
        assert_eq!(signed_us(0), "+0.000");
        assert_eq!(signed_us(-i128::from(u64::MAX)), "-18446744073709551.615");
    }

    #[test]
    fn percents_are_rounded_and_need_a_whole() {
        assert_eq!(percent(340, 15_000).as_deref(), Some("+2.27"));
        assert_eq!(percent(-372, 100_000).as_deref(), Some("-0.37"));
        assert_eq!(percent(0, 1).as_deref(), Some("+0.00"));
        assert_eq!(percent(-1, 1_000_000).as_deref(), Some("-0.00"));
        assert_eq!(percent(5, 100_000).as_deref(), Some("+0.01"));
        assert_eq!(percent(1, 0), None);
    }

    #[test]
    fn durations_are_shown_in_the_largest_whole_unit() {
        assert_eq!(whole(0), "0 ns");
        assert_eq!(whole(1_500), "1500 ns");
        assert_eq!(whole(15_000), "15 us");
        assert_eq!(whole(110_000_000), "110 ms");
        assert_eq!(whole(60_000_000_000), "60 s");
        assert_eq!(range(100_000, 200_000), "100..200 us");
        assert_eq!(range(500_000, 1_000_000), "500..1000 us");
        assert_eq!(range(15_000, 15_000), "15 us");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_767_225_600, "2026-01-01 00:00:00 UTC"),
            (1_796_076_001, "2026-11-30 22:00:01 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000 + 999_999_999), text);
        }
        assert_eq!(utc(u64::MAX), "2554-07-21 23:34:33 UTC");
    }

    #[test]
    fn spoken_durations_suit_their_size() {
        assert_eq!(spoken(15_340), "15.340 us");
        assert_eq!(spoken(999_999), "999.999 us");
        assert_eq!(spoken(28_000_600), "28.001 ms");
        assert_eq!(spoken(1_500_000_000), "1.500 s");
    }
}
