//! What is wrong with a configuration, shown at the place where it is wrong.

use std::{cell::RefCell, fmt::Write as _, ops::Range};

/// The most characters of a line that are shown: a terminal of common width, and some to spare.
const WIDEST: usize = 120;

/// Something wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Bytes of the file.
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) hint: Option<String>,
    /// The key, if nobody knows it where it stands: it may be known elsewhere.
    pub(super) unknown: Option<String>,
}

/// All that was found wrong so far. Shared by everyone who reads, so that one run finds as much as it can.
#[derive(Debug, Default)]
pub(super) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub(super) fn add(&self, span: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        let problem = Problem { span, message: message.into(), hint, unknown: None };
        self.0.borrow_mut().push(problem);
    }

    pub(super) fn add_unknown(&self, span: Range<usize>, key: &str, message: String, hint: Option<String>) {
        let problem = Problem { span, message, hint, unknown: Some(key.to_owned()) };
        self.0.borrow_mut().push(problem);
    }

    /// In the order of the file.
    pub(super) fn into_sorted(self) -> Vec<Problem> {
        let mut problems = self.0.into_inner();
        problems.sort_by_key(|problem| problem.span.start);
        problems
    }
}

/// Shows problems in the style of rustc: what, where, the line with a mark under it, and the way out.
pub(crate) fn render(name: &str, text: &str, problems: &[Problem]) -> String {
    let mut out = String::new();
    for (index, problem) in problems.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        show(name, text, problem, &mut out).expect("writing to memory does not fail");
    }
    out
}

fn show(name: &str, text: &str, problem: &Problem, out: &mut String) -> std::fmt::Result {
    let start = floor(text, problem.span.start);
    let end = floor(text, problem.span.end).max(start);
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    let number = text[..line_start].matches('\n').count() + 1;
    let before = text[line_start..start].chars().count();
    let marked = text[start..end.min(line_end)].trim_end().chars().count().max(1);
    let line: Vec<char> = text[line_start..line_end].trim_end().chars().collect();

    // A long line is shown from a little before what is marked.
    let from = if line.len() > WIDEST { before.saturating_sub(WIDEST / 3) } else { 0 };
    let shown: String = line.iter().skip(from).take(WIDEST).map(|c| printable(*c)).collect();
    let marked = marked.min(WIDEST.saturating_sub(before - from)).max(1);
    let gutter = " ".repeat(number.to_string().len());

    writeln!(out, "\x1b[1;31merror\x1b[0m: {}", problem.message)?;
    writeln!(out, "{gutter}--> {name}:{number}:{}", before + 1)?;
    writeln!(out, "{gutter} |")?;
    writeln!(out, "{number} | {shown}")?;
    writeln!(out, "{gutter} | {}\x1b[1;31m{}\x1b[0m", " ".repeat(before - from), "^".repeat(marked))?;
    if let Some(hint) = &problem.hint {
        writeln!(out, "\x1b[1;36mhint\x1b[0m: {hint}")?;
    }
    Ok(())
}

/// A tab takes one column here, and nothing in the file can steer the terminal.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// The nearest place at or before `at` that does not cut a character.
fn floor(text: &str, at: usize) -> usize {
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
        fn any_span_of_any_text_can_be_shown(text in ".{0,300}", start in 0usize..400, length in 0usize..400) {
            render("x.toml", &text, &[problem(start..start + length)]);
        }
    }
}
