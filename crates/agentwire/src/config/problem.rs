//! Errors in a configuration file, rendered with the line they occur in.

use std::{cell::RefCell, fmt::Write as _, ops::Range};

use super::mask;

/// Maximum number of characters shown of a line, a little more than a common terminal width.
const MAX_WIDTH: usize = 120;

/// An error and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Byte range in the file.
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) hint: Option<String>,
    /// The key, if it is unknown in its table; it may exist in another one.
    pub(super) unknown: Option<UnknownKey>,
}

/// A key that its table does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnknownKey {
    /// The path of the table, empty for the top of the file.
    pub(super) table: String,
    pub(super) key: String,
    /// True if the table has a key that differs by one letter; the hint names it.
    pub(super) is_misspelled: bool,
}

impl Problem {
    /// Its byte range in the text.
    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The key, if it is unknown.
    pub(crate) fn key(&self) -> Option<&str> {
        self.unknown.as_ref().map(|unknown| unknown.key.as_str())
    }
}

/// All errors found so far. Shared by all readers, so that one pass reports as many errors as possible.
#[derive(Debug, Default)]
pub(super) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub(super) fn add(&self, span: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        let problem = Problem { span, message: message.into(), hint, unknown: None };
        self.0.borrow_mut().push(problem);
    }

    pub(super) fn add_unknown(
        &self,
        span: Range<usize>,
        unknown: UnknownKey,
        message: String,
        hint: Option<String>,
    ) {
        let problem = Problem { span, message, hint, unknown: Some(unknown) };
        self.0.borrow_mut().push(problem);
    }

    /// The errors in the order of the file.
    pub(super) fn into_sorted(self) -> Vec<Problem> {
        let mut problems = self.0.into_inner();
        problems.sort_by_key(|problem| problem.span.start);
        problems
    }
}

/// Renders problems in the style of rustc: message, position, the marked line, and a hint.
pub(crate) fn render(name: &str, text: &str, problems: &[Problem]) -> String {
    let mut out = String::new();
    for (index, problem) in problems.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        render_one(name, text, problem, &mut out).expect("writing to memory does not fail");
    }
    out
}

fn render_one(name: &str, text: &str, problem: &Problem, out: &mut String) -> std::fmt::Result {
    let start = floor_char_boundary(text, problem.span.start);
    let end = floor_char_boundary(text, problem.span.end).max(start);
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    let number = text[..line_start].matches('\n').count() + 1;
    let before = text[line_start..start].chars().count();
    let marked = text[start..end.min(line_end)].trim_end().chars().count().max(1);
    let line = mask::line(text[line_start..line_end].trim_end(), &mask::Place::behind(&text[..line_start]));

    // A long line is truncated to the part around the mark.
    let from = if line.len() > MAX_WIDTH { before.saturating_sub(MAX_WIDTH / 3) } else { 0 };
    let shown: String = line.iter().skip(from).take(MAX_WIDTH).map(|c| printable(*c)).collect();
    let marked = marked.min(MAX_WIDTH.saturating_sub(before - from)).max(1);
    let gutter = " ".repeat(number.to_string().len());

    writeln!(out, "\x1b[1;31merror\x1b[0m: {}", mask::urls(&problem.message))?;
    writeln!(out, "{gutter}--> {name}:{number}:{}", before + 1)?;
    writeln!(out, "{gutter} |")?;
    writeln!(out, "{number} | {shown}")?;
    writeln!(out, "{gutter} | {}\x1b[1;31m{}\x1b[0m", " ".repeat(before - from), "^".repeat(marked))?;
    if let Some(hint) = &problem.hint {
        writeln!(out, "\x1b[1;36mhint\x1b[0m: {hint}")?;
    }
    Ok(())
}

/// Replaces tabs by one column, and control characters so that the file cannot control the terminal.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// The last character boundary at or before `at`.
fn floor_char_boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problem(span: Range<usize>) -> Problem {
        Problem { span, message: "no".into(), hint: None, unknown: None }
    }

    #[test]
    fn columns_count_characters() {
        let text = "a = 1\nß = \"ü\" \u{1b}[31m\n";
        let shown = render("x.toml", text, &[problem(11..15)]);
        assert!(shown.contains("x.toml:2:5"), "{shown}");
        assert!(shown.contains("2 | ß = \"ü\" \u{fffd}[31m"), "{shown:?}");
    }

    proptest! {
        #[test]
        fn rendering_never_panics(text in ".{0,300}", start in 0usize..400, length in 0usize..400) {
            render("x.toml", &text, &[problem(start..start + length)]);
        }
    }
}
