//! Output: tables and lines for people, JSON for programs.
//!
//! Text from servers never reaches a terminal unescaped: control characters, and those that change
//! the direction of text, are escaped, in JSON too.

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write as _};
use std::time::SystemTime;

pub(crate) use comfy_table::CellAlignment as Align;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;

use crate::safe_json;

/// Standard output, in one of its two forms.
#[derive(Debug)]
pub(crate) struct Output {
    out: BufWriter<Stdout>,
    pub(crate) json: bool,
    pub(crate) to_terminal: bool,
}

/// An array of JSON that is written while it grows, one element per line.
#[derive(Debug)]
pub(crate) struct Array<'a> {
    output: &'a mut Output,
    has_elements: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let stdout = io::stdout();
        Self {
            json,
            to_terminal: stdout.is_terminal(),
            out: BufWriter::new(stdout),
        }
    }

    /// Writes a line that is already safe.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.out.write_all(line.as_bytes())?;
        self.out.write_all(b"\n")
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Writes a body with a line feed after it: unchanged, but on a terminal with control
    /// characters escaped.
    pub(crate) fn body(&mut self, body: &[u8]) -> io::Result<()> {
        if self.to_terminal {
            let text = String::from_utf8_lossy(body);
            return self.line(&printable_lines(&text));
        }
        self.bytes(body)?;
        self.bytes(b"\n")
    }

    /// Writes an object on a line.
    pub(crate) fn object(&mut self, value: &impl Serialize) -> io::Result<()> {
        safe_json::write(&mut self.out, value)?;
        self.out.write_all(b"\n")
    }

    /// Writes an array. It is complete even if `make` fails.
    pub(crate) fn array<E: From<io::Error>>(
        &mut self,
        fill: impl FnOnce(&mut Array<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.out.write_all(b"[")?;
        let mut array = Array {
            output: self,
            has_elements: false,
        };
        let filled = fill(&mut array);
        let end: &[u8] = if array.has_elements { b"\n]\n" } else { b"]\n" };
        self.out.write_all(end)?;
        filled
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Array<'_> {
    pub(crate) fn push(&mut self, value: &impl Serialize) -> io::Result<()> {
        let before: &[u8] = if self.has_elements { b",\n" } else { b"\n" };
        self.has_elements = true;
        self.output.out.write_all(before)?;
        safe_json::write(&mut self.output.out, value)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// The lines of a table, without spaces at their ends. Cells are made printable here.
pub(crate) fn table(columns: &[(&str, Align)], rows: &[Vec<String>]) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(columns.iter().map(|(name, _)| name));
    table.add_rows(
        rows.iter()
            .map(|row| row.iter().map(|cell| printable(cell))),
    );
    for (column, (_, align)) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, 2));
        column.set_cell_alignment(*align);
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// A text for a cell of a table: one that is longer than this many characters ends in `…`. JSON has the whole text.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => {
            let kept: String = text.chars().take(chars_max - 1).collect();
            kept + "…"
        }
    }
}

/// A text with control characters escaped, on one line.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escape(text, is_active)
}

/// The same, but with line feeds and tabs.
pub(crate) fn printable_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_active(c) && !matches!(c, '\n' | '\t'))
}

/// Control characters of terminals, and those for the direction of text, which can make it look
/// like another text.
pub(crate) fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// A time in the form of RFC 3339, in UTC and whole seconds, like the service's.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        // The last second of 9999 is beyond the library's range: it means never.
        Err(_) => "9999-12-31T23:59:59Z".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        for (text, expected) in [
            ("plain äöü 😀 \\", "plain äöü 😀 \\"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\u{202e}b", "a\\u{202e}b"),
        ] {
            assert_eq!(printable(text), expected);
        }
        assert_eq!(printable_lines("a\r\nb\tc"), "a\\r\nb\tc");
    }

    #[test]
    fn columns_are_aligned_by_visible_width() {
        let rows = [
            vec!["漢字".to_owned(), "1".to_owned(), "x".to_owned()],
            vec!["a".to_owned(), "1000".to_owned(), String::new()],
        ];
        let columns = [
            ("NAME", Align::Left),
            ("N", Align::Right),
            ("", Align::Left),
        ];
        assert_eq!(
            table(&columns, &rows),
            ["NAME     N", "漢字     1  x", "a     1000"]
        );
    }

    #[test]
    fn times() {
        let at =
            |seconds| rfc3339(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds));
        assert_eq!(at(1_795_219_200), "2026-11-21T00:00:00Z");
        assert_eq!(at(253_402_300_799), "9999-12-31T23:59:59Z");
    }
}
