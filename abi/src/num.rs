// SPDX-License-Identifier: GPL-2.0

//! Arithmetic and formatting of 64-bit integers that is safe inside a 32-bit kernel.
//!
//! On 32-bit ARM a division of 64-bit integers does not link, and `{}` of one panics, because it divides. Everything
//! here is made of shifts, subtractions and 32-bit operations, and nothing can panic.

use core::fmt;

/// Quotient and remainder of `n / d`, by shifting and subtracting. A division by 0 gives `(0, n)`.
pub const fn div(n: u64, d: u64) -> (u64, u64) {
    if d == 0 {
        return (0, n);
    }
    let mut rest = n;
    let mut quotient = 0_u64;
    let mut remainder = 0_u64;
    let mut bits = 64_u32;
    while bits > 0 {
        bits = bits.wrapping_sub(1);
        // The remainder is below `d`; the bit shifted out tells whether doubling it still fits.
        let carry = remainder >> 63;
        remainder = (remainder << 1) | (rest >> 63);
        rest <<= 1;
        quotient <<= 1;
        if carry != 0 || remainder >= d {
            remainder = remainder.wrapping_sub(d);
            quotient |= 1;
        }
    }
    (quotient, remainder)
}

/// `n / d`, rounded to the nearest, halves up.
pub const fn div_round(n: u64, d: u64) -> u64 {
    let (quotient, remainder) = div(n, d);
    if d != 0 && remainder >= d.wrapping_sub(remainder) {
        quotient.wrapping_add(1)
    } else {
        quotient
    }
}

/// An unsigned 128-bit sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wide {
    /// The upper half.
    pub high: u64,
    /// The lower half.
    pub low: u64,
}

impl Wide {
    /// The square of a 64-bit integer, of 32-bit products.
    pub const fn square(n: u64) -> Self {
        let low = n & 0xffff_ffff;
        let high = n >> 32;
        let cross = low.wrapping_mul(high);
        // n^2 = high^2 * 2^64 + cross * 2^33 + low^2
        let (sum, carry) = low.wrapping_mul(low).overflowing_add(cross << 33);
        Self {
            high: high
                .wrapping_mul(high)
                .wrapping_add(cross >> 31)
                .wrapping_add(carry as u64),
            low: sum,
        }
    }

    /// The sum, wrapping.
    pub const fn plus(self, other: Self) -> Self {
        let (low, carry) = self.low.overflowing_add(other.low);
        Self {
            high: self
                .high
                .wrapping_add(other.high)
                .wrapping_add(carry as u64),
            low,
        }
    }
}

/// Formats a 64-bit integer in decimal.
#[derive(Clone, Copy, Debug)]
pub struct Dec(pub u64);

impl fmt::Display for Dec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GROUP: u64 = 1_000_000_000;
        let (rest, low) = div(self.0, GROUP);
        if rest == 0 {
            return write!(f, "{}", low as u32);
        }
        let (top, middle) = div(rest, GROUP);
        if top == 0 {
            write!(f, "{}{:09}", middle as u32, low as u32)
        } else {
            write!(f, "{}{:09}{:09}", top as u32, middle as u32, low as u32)
        }
    }
}

/// Formats a signed 64-bit integer in decimal.
#[derive(Clone, Copy, Debug)]
pub struct SignedDec(pub i64);

impl fmt::Display for SignedDec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        Dec(self.0.unsigned_abs()).fmt(f)
    }
}

/// Formats a 64-bit integer as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub struct Hex(pub u64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}{:08x}", (self.0 >> 32) as u32, self.0 as u32)
    }
}

/// Formats nanoseconds as microseconds with three decimals (`15.340`).
#[derive(Clone, Copy, Debug)]
pub struct Micros(pub u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = div(self.0, 1000);
        write!(f, "{}.{:03}", Dec(whole), part as u32)
    }
}

/// Reads a decimal integer: digits only, no sign, no space. `None` for anything else, and where it does not fit.
pub const fn parse_dec(digits: &str) -> Option<u64> {
    let mut rest = digits.as_bytes();
    if rest.is_empty() {
        return None;
    }
    let mut value = 0_u64;
    while let [digit, tail @ ..] = rest {
        if !digit.is_ascii_digit() {
            return None;
        }
        // `checked_mul` of 64-bit integers would need 128-bit multiplication on some machines: multiply by shifting.
        if value > u64::MAX >> 4 {
            // At most one more digit can fit, so compare with the exact limit.
            const LIMIT: u64 = div(u64::MAX, 10).0;
            if value > LIMIT {
                return None;
            }
        }
        let tens = (value << 3).wrapping_add(value << 1);
        let (sum, overflow) = tens.overflowing_add(digit.wrapping_sub(b'0') as u64);
        if overflow {
            return None;
        }
        value = sum;
        rest = tail;
    }
    Some(value)
}

/// Reads a hexadecimal integer of 1 to 16 lower-case digits.
pub const fn parse_hex(digits: &str) -> Option<u64> {
    let mut rest = digits.as_bytes();
    if rest.is_empty() || rest.len() > 16 {
        return None;
    }
    let mut value = 0_u64;
    while let [digit, tail @ ..] = rest {
        let nibble = match *digit {
            d @ b'0'..=b'9' => d.wrapping_sub(b'0'),
            d @ b'a'..=b'f' => d.wrapping_sub(b'a').wrapping_add(10),
            _ => return None,
        };
        value = (value << 4) | nibble as u64;
        rest = tail;
    }
    Some(value)
}

/// Reads a decimal integer with an optional minus sign.
pub fn parse_signed_dec(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => {
            let magnitude = parse_dec(digits)?;
            (magnitude <= i64::MIN.unsigned_abs()).then(|| (magnitude as i64).wrapping_neg())
        }
        None => i64::try_from(parse_dec(text)?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn division_is_division(n: u64, d in 1_u64..) {
            prop_assert_eq!(div(n, d), (n / d, n % d));
            prop_assert_eq!(div_round(n, d), ((n as u128 * 2 + d as u128) / (d as u128 * 2)) as u64);
        }

        #[test]
        fn small_divisors_too(n: u64, d in 1_u64..5000) {
            prop_assert_eq!(div(n, d), (n / d, n % d));
        }

        #[test]
        fn squares_are_exact(n: u64, m: u64) {
            let square = Wide::square(n);
            prop_assert_eq!(((square.high as u128) << 64) | square.low as u128, n as u128 * n as u128);
            let sum = square.plus(Wide::square(m));
            prop_assert_eq!(
                ((sum.high as u128) << 64) | sum.low as u128,
                (n as u128 * n as u128).wrapping_add(m as u128 * m as u128)
            );
        }

        #[test]
        fn formats_and_parses(n: u64, i: i64) {
            prop_assert_eq!(Dec(n).to_string(), n.to_string());
            prop_assert_eq!(SignedDec(i).to_string(), i.to_string());
            prop_assert_eq!(Hex(n).to_string(), format!("{n:016x}"));
            prop_assert_eq!(parse_dec(&n.to_string()), Some(n));
            prop_assert_eq!(parse_hex(&format!("{n:x}")), Some(n));
            prop_assert_eq!(parse_signed_dec(&i.to_string()), Some(i));
            prop_assert_eq!(Micros(n).to_string(), format!("{}.{:03}", n / 1000, n % 1000));
        }

        #[test]
        fn parses_what_the_standard_library_parses(text in "[0-9]{0,22}") {
            prop_assert_eq!(parse_dec(&text), text.parse::<u64>().ok());
        }
    }

    #[test]
    fn edges() {
        assert_eq!(div(7, 0), (0, 7));
        assert_eq!(div(u64::MAX, u64::MAX), (1, 0));
        assert_eq!(parse_dec("18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_dec("18446744073709551616"), None);
        for wrong in ["", "+1", "-1", " 1", "1 ", "0x1", "１"] {
            assert_eq!(parse_dec(wrong), None, "{wrong:?}");
        }
        assert_eq!(parse_signed_dec("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_signed_dec("9223372036854775808"), None);
        assert_eq!(parse_signed_dec("--1"), None);
        assert_eq!(Dec(1_000_000_000).to_string(), "1000000000");
    }
}
