// SPDX-License-Identifier: GPL-2.0

//! What printk, dmesg, journald, syslog daemons and serial lines put before a message.
//!
//! No format is asked for or guessed: our messages begin with [`MARKER`], and what stands before it must end like a
//! prefix that is known. A line that merely mentions the marker does not.

use std::borrow::Cow;

use super::stream::find;

/// How each message of the module begins.
pub const MARKER: &[u8] = b"messung: ";

/// The message of ours in a line, from its marker on, without space at its end.
pub fn message(line: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut from = 0;
    while let Some(found) = find(&line[from..], MARKER) {
        let at = from + found;
        let (head, rest) = line.split_at(at);
        if may_begin_after(head) {
            return Some(Cow::Borrowed(rest.trim_ascii_end()));
        }
        if is_key(head) {
            return Some(json_string(rest));
        }
        from = at + MARKER.len();
    }
    None
}

/// Whether a message may begin where `head` ends.
fn may_begin_after(head: &[u8]) -> bool {
    let trimmed = head.trim_ascii_end();
    if trimmed.is_empty() {
        return true;
    }
    let spaced = trimmed.len() < head.len();
    if spaced {
        ends_in_bracket(trimmed)
            || ends_in_level_name(trimmed)
            || last_word(trimmed) == b"kernel:"
            || trimmed.ends_with(b" kernel - - -")
            || is_iso_time(last_word(trimmed))
    } else {
        is_kmsg(trimmed) || ends_in_level_number(trimmed) || last_word(trimmed) == b"MESSAGE="
    }
}

/// A time stamp or a caller in brackets: `[   12.345678]`, `[Mon Nov 30 22:00:01 2026]`, `[  +0.000123]`,
/// `[   12.345678 <    0.000123>]`, `[   T12]`, `[C0]`; but no process id, which syslog daemons write as `[123]`.
fn ends_in_bracket(head: &[u8]) -> bool {
    let Some(head) = head.strip_suffix(b"]") else {
        return false;
    };
    let Some(open) = head.iter().rposition(|&byte| byte == b'[') else {
        return false;
    };
    let inside = head[open + 1..].trim_ascii();
    let time = inside.iter().any(|byte| b".:".contains(byte))
        && inside.iter().any(u8::is_ascii_digit)
        && inside
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b" .:,+-<>".contains(byte));
    let caller = matches!(inside, [b'T' | b'C', number @ ..] if is_number(number));
    time || caller
}

/// `kern  :info  :`, as `dmesg -x` writes it.
fn ends_in_level_name(head: &[u8]) -> bool {
    const LEVELS: [&[u8]; 8] = [
        b"emerg", b"alert", b"crit", b"err", b"warn", b"notice", b"info", b"debug",
    ];
    head.strip_suffix(b":").is_some_and(|head| {
        head.rsplit(|&byte| byte == b':')
            .next()
            .is_some_and(|level| LEVELS.contains(&level.trim_ascii()))
    })
}

/// `<6>`, as printk stores it.
fn ends_in_level_number(head: &[u8]) -> bool {
    head.strip_suffix(b">").is_some_and(|head| {
        head.rsplit(|&byte| byte == b'<')
            .next()
            .is_some_and(is_number)
            && head.contains(&b'<')
    })
}

/// `2026-11-30T22:00:01,123456+00:00`, as `dmesg --time-format iso` writes it.
fn is_iso_time(word: &[u8]) -> bool {
    word.len() >= b"2026-11-30T22:00:01".len()
        && word.get(10) == Some(&b'T')
        && word
            .iter()
            .all(|byte| byte.is_ascii_digit() || b"T:-+.,Z".contains(byte))
}

/// `6,1234,5678,-;`, as /dev/kmsg gives it: level, sequence number, microseconds, flags, and more in time to come.
fn is_kmsg(head: &[u8]) -> bool {
    let Some(head) = head.strip_suffix(b";") else {
        return false;
    };
    let mut fields = head.split(|&byte| byte == b',');
    let numbers = fields.by_ref().take(3).filter(|field| is_number(field));
    numbers.count() == 3 && fields.next().is_some_and(|flags| !flags.contains(&b' '))
}

/// `"MESSAGE":"`, as journalctl writes JSON, or `"msg": "`, as dmesg does.
fn is_key(head: &[u8]) -> bool {
    head.strip_suffix(b"\"")
        .and_then(|head| head.trim_ascii_end().strip_suffix(b":"))
        .map(<[u8]>::trim_ascii_end)
        .is_some_and(|head| head.ends_with(b"\"MESSAGE\"") || head.ends_with(b"\"msg\""))
}

/// The string of JSON whose first quote was taken off. Where it does not end, it was cut: then all there is.
fn json_string(rest: &[u8]) -> Cow<'_, [u8]> {
    let mut escaped = false;
    let end = rest.iter().position(|&byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    let text = &rest[..end.unwrap_or(rest.len())];
    if text.contains(&b'\\') {
        let quoted = [b"\"", text, b"\""].concat();
        if let Ok(text) = serde_json::from_slice::<String>(&quoted) {
            return Cow::Owned(text.trim_ascii_end().as_bytes().to_vec());
        }
    }
    Cow::Borrowed(text.trim_ascii_end())
}

fn is_number(digits: &[u8]) -> bool {
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

fn last_word(head: &[u8]) -> &[u8] {
    head.rsplit(u8::is_ascii_whitespace)
        .next()
        .unwrap_or_default()
}

/// The line without the escape sequences that colour it on a terminal (`ESC [ … letter`).
pub fn without_escapes(line: &[u8]) -> Cow<'_, [u8]> {
    const ESCAPE: u8 = 0x1b;
    if !line.contains(&ESCAPE) {
        return Cow::Borrowed(line);
    }
    let mut plain = Vec::with_capacity(line.len());
    let mut rest = line;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != ESCAPE {
            plain.push(*byte);
        } else if let [b'[', tail @ ..] = tail {
            let end = tail.iter().position(|byte| (b'@'..=b'~').contains(byte));
            rest = end.map_or(&[], |end| &tail[end + 1..]);
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prefix as each program writes it.
    const PREFIXES: [&str; 41] = [
        "",
        "  ",
        "[   12.345678] ",
        "[12345.345678] ",
        "<6>",
        "<6>[   12.345678] ",
        "[   12.345678][   T12] ",
        "[   12.345678] [T12] ",
        "[   12.345678][    C0] ",
        "<6>[   12.345678][    T1] ",
        "kern  :info  : ",
        "kern  :info  : [   12.345678] ",
        "kern  :debug : [Mon Nov 30 22:00:01 2026] ",
        "kern  :debug : 2026-11-30T22:00:01,123456+00:00 ",
        "[Mon Nov 30 22:00:01 2026] ",
        "[Mon Nov 30 22:00:01 2026 <    0.000123>] ",
        "[   12.345678 <    0.000123>] ",
        "[<    0.000123>] ",
        "[Nov30 22:00] ",
        "[  +0.000123] ",
        "2026-11-30T22:00:01,123456+00:00 ",
        "2026-11-30T22:00:01,123456+00:00 [T12] ",
        "Nov 30 22:00:01 host kernel: ",
        "Nov 30 22:00:01.123456 host kernel: ",
        "2026-11-30T22:00:01+0000 host kernel: ",
        "2026-11-30T22:00:01.123456+00:00 host kernel: ",
        "2026-11-30 22:00:01 host kernel: ",
        "[   12.345678] host kernel: ",
        "[   12.345678 <    0.000123 >] host kernel: ",
        "1764540001.123456 host kernel: ",
        "Mon 2026-11-30 22:00:01 UTC host kernel: ",
        "MESSAGE=",
        "    MESSAGE=",
        "Nov 30 22:00:01 host kernel: [   12.345678] ",
        "2026-11-30T22:00:01.123456+00:00 host kernel: [   12.345678] ",
        "Nov 30 22:00:01 host kern.info kernel: [   12.345678] ",
        "<6>1 2026-11-30T22:00:01.123456+00:00 host kernel - - - [   12.345678] ",
        "<6>1 2026-11-30T22:00:01.123456+00:00 host kernel - - - ",
        "6,1234,56789012,-;",
        "7,1234,56789012,c,caller=T12;",
        "host login: [   12.345678] ",
    ];

    fn text(line: &str) -> Option<String> {
        message(line.as_bytes()).map(|message| String::from_utf8_lossy(&message).into_owned())
    }

    #[test]
    fn strings_of_json_are_unquoted() {
        for (line, expected) in [
            (r#"{"MESSAGE":"messung: a","PRIORITY":"7"}"#, "messung: a"),
            (
                r#"data: {"A":"messung: ","MESSAGE":"messung: a"}"#,
                "messung: a",
            ),
            ("\t\"MESSAGE\" : \"messung: a b \",", "messung: a b"),
            (r#"         "msg": "messung: a""#, "messung: a"),
            (
                r#"{"MESSAGE":"messung: \"a\\\\\u0041 ","B":""}"#,
                r#"messung: "a\\A"#,
            ),
            (r#"{"MESSAGE":"messung: a\xb"}"#, r"messung: a\xb"),
            (r#"{"MESSAGE":"messung: cut"#, "messung: cut"),
            (r#"{"MESSAGE":"messung: cut\"#, r"messung: cut\"),
        ] {
            assert_eq!(text(line).as_deref(), Some(expected), "{line}");
        }
        for line in [
            r#"{"CMDLINE":"messung: a"}"#,
            r#""messung: a""#,
            r#"MESSAGE:"messung: a""#,
        ] {
            assert_eq!(text(line), None, "{line}");
        }
    }

    #[test]
    fn every_known_prefix_is_taken_off() {
        for prefix in PREFIXES {
            for end in ["", "\n", "\r\n", "  "] {
                let line = format!("{prefix}messung: text of it{end}");
                assert_eq!(
                    text(&line).as_deref(),
                    Some("messung: text of it"),
                    "{line:?}"
                );
            }
        }
    }

    #[test]
    fn mentions_are_not_messages() {
        for line in [
            "",
            "messung",
            "messung:",
            "the messung: is done",
            "Nov 30 22:00:01 host sudo[123]:     root : COMMAND=/usr/bin/grep messung: kern.log",
            "Nov 30 22:00:01 host logger[123]: messung: [1/14] udelay 15 us",
            "Nov 30 22:00:01 host logger: messung: [1/14] udelay 15 us",
            "[   12.345678] audit: msg=\"messung: [1/14]\"",
            "[   12.345678] foo: messung: bar",
            "[1/14] messung: bar",
            "host kernel:messung: bar",
            "notkernel: messung: bar",
            "a <b>messung: bar",
            "a,b,c,d;messung: bar",
            "[   12.345678] remessung: bar",
            "[123] messung: bar",
        ] {
            assert_eq!(message(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn a_mention_does_not_hide_a_message() {
        assert_eq!(
            text("grep messung: x[   12.345678] messung: y").as_deref(),
            Some("messung: y")
        );
    }

    #[test]
    fn colours_are_taken_off() {
        assert_eq!(
            *without_escapes(b"\x1b[32m[   12.3] \x1b[0m\x1b[33mmessung: \x1b[0mx\x1b"),
            *b"[   12.3] messung: x"
        );
        assert_eq!(*without_escapes(b"a\x1b[31"), *b"a");
        assert!(matches!(without_escapes(b"plain"), Cow::Borrowed(_)));
    }
}
