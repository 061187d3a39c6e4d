//! Styles and widths of terminal text. Text of a server is cleaned, so that it cannot control the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) const RESET: &str = "\x1b[0m";
pub(crate) const BOLD: &str = "\x1b[1m";
pub(crate) const DIM: &str = "\x1b[2m";
pub(crate) const RED: &str = "\x1b[31m";
pub(crate) const GREEN: &str = "\x1b[32m";
pub(crate) const YELLOW: &str = "\x1b[33m";
pub(crate) const CYAN: &str = "\x1b[36m";

/// Text in a style.
pub(crate) fn styled(style: &str, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{RESET}")
}

/// True if a character may go to the terminal as it is. Direction marks could reorder a question.
pub(crate) fn is_printable(letter: char) -> bool {
    !letter.is_control()
        && !matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text without control characters; line breaks and tabs become spaces.
pub(crate) fn one_line(text: &str) -> String {
    let spaced = text.chars().map(|letter| if letter.is_whitespace() { ' ' } else { letter });
    spaced.filter(|letter| is_printable(*letter)).collect()
}

/// The text without control characters but line breaks.
pub(crate) fn lines_only(text: &str) -> String {
    text.chars().filter(|letter| *letter == '\n' || is_printable(*letter)).collect()
}

/// The number of columns.
pub(crate) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// The start of a text that fits into a number of columns, with `…` if it is longer.
pub(crate) fn clipped(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut used = 0;
    let mut start = String::new();
    for letter in text.chars() {
        used += letter.width().unwrap_or(0);
        if used + 1 > columns {
            break;
        }
        start.push(letter);
    }
    start.push('…');
    start
}

/// The text with spaces up to a number of columns.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// A table with columns as wide as their widest cell, within a number of columns.
pub(crate) fn table(header: &[String], rows: &[Vec<String>], columns: usize) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0).max(header.len());
    if count == 0 {
        return Vec::new();
    }
    let cell = |row: &[String], index: usize| row.get(index).map(|cell| one_line(cell)).unwrap_or_default();
    let mut widths: Vec<usize> = (0..count)
        .map(|index| {
            let cells = rows.iter().map(|row| width(&cell(row, index)));
            cells.chain([width(&cell(header, index))]).max().unwrap_or(0).max(1)
        })
        .collect();
    // The widest column gives up its space first.
    let available = columns.saturating_sub(3 * count + 1).max(count * 3);
    while widths.iter().sum::<usize>() > available
        && let Some(widest) = widths.iter_mut().max()
        && *widest > 3
    {
        *widest -= 1;
    }
    let line = |left: &str, middle: &str, right: &str| {
        let cells: Vec<_> = widths.iter().map(|width| "─".repeat(width + 2)).collect();
        format!("{left}{}{right}", cells.join(middle))
    };
    let row = |row: &[String], style: &str| {
        let cells: Vec<_> = widths
            .iter()
            .enumerate()
            .map(|(index, width)| {
                let text = padded(&clipped(&cell(row, index), *width), *width);
                if style.is_empty() { format!(" {text} ") } else { format!(" {style}{text}{RESET} ") }
            })
            .collect();
        format!("│{}│", cells.join("│"))
    };
    let mut lines = vec![line("┌", "┬", "┐")];
    if !header.is_empty() {
        lines.push(row(header, BOLD));
        lines.push(line("├", "┼", "┤"));
    }
    lines.extend(rows.iter().map(|cells| row(cells, "")));
    lines.push(line("└", "┴", "┘"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_count_two_columns() {
        assert_eq!(width("你好"), 4);
        assert_eq!(clipped("你好吗", 5), "你好…");
        assert_eq!(padded("你", 4), "你  ");
        let lines =
            table(&["名字".into(), "n".into()], &[vec!["小明".into(), "1".into()], vec!["A".into()]], 80);
        let plain: Vec<_> = lines.iter().map(|line| line.replace(BOLD, "").replace(RESET, "")).collect();
        assert!(plain.iter().all(|line| width(line) == width(&plain[0])), "{plain:?}");
        assert_eq!(plain[1], "│ 名字 │ n │");
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let lines = table(&[], &[vec!["x".repeat(200), "y".repeat(50)]], 40);
        assert!(lines.iter().all(|line| width(line) <= 40), "{lines:?}");
    }

    #[test]
    fn control_characters_are_removed() {
        assert_eq!(one_line("a\x1b[31mb\nc\u{202e}d"), "a[31mb cd");
    }
}
