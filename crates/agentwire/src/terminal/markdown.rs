//! Markdown to terminal text, piece by piece: text is printed as it arrives, only tables and links wait for their end.

use super::style::{BOLD, CYAN, DIM, RESET, is_printable, table};

/// The longest text that waits for the end of a link.
const MAX_LINK: usize = 400;

/// The state of a message.
#[derive(Debug)]
pub(crate) struct Markdown {
    columns: usize,
    /// The start of a line whose kind is not known yet, or a whole line of a table.
    start: String,
    is_at_start: bool,
    is_table_row: bool,
    in_fence: bool,
    is_heading: bool,
    is_bold: bool,
    is_italic: bool,
    is_code: bool,
    /// Asterisks whose meaning depends on the next character.
    stars: usize,
    is_escaped: bool,
    /// A link up to here: `[text](url`.
    link: String,
    rows: Vec<Vec<String>>,
}

impl Markdown {
    pub(crate) fn new(columns: usize) -> Self {
        Self {
            columns,
            start: String::new(),
            is_at_start: true,
            is_table_row: false,
            in_fence: false,
            is_heading: false,
            is_bold: false,
            is_italic: false,
            is_code: false,
            stars: 0,
            is_escaped: false,
            link: String::new(),
            rows: Vec::new(),
        }
    }

    /// Adds text; returns the part that can be printed.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::new();
        for letter in text.chars() {
            match letter {
                '\n' => self.end_line(&mut out),
                '\t' => self.letter(' ', &mut out),
                letter if is_printable(letter) => self.letter(letter, &mut out),
                _ => {}
            }
        }
        out
    }

    /// Ends the message.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        if self.is_at_start && self.start.is_empty() {
            self.flush_table(&mut out);
        } else {
            self.end_line(&mut out);
            self.flush_table(&mut out);
            // The caller decides on the line break.
            if out.ends_with('\n') {
                out.pop();
            }
        }
        *self = Self::new(self.columns);
        out
    }

    fn letter(&mut self, letter: char, out: &mut String) {
        if !self.is_at_start {
            return self.inline(letter, out);
        }
        self.start.push(letter);
        if self.in_fence {
            if !"```".starts_with(&*self.start) && !self.start.starts_with("```") {
                self.begin_text(out);
            }
            return;
        }
        if self.is_table_row {
            return;
        }
        let text = self.start.trim_start();
        if text.starts_with('|') {
            self.is_table_row = true;
            return;
        }
        let digits = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let is_undecided = text.is_empty()
            || text.chars().all(|letter| letter == '#')
            || matches!(text, "-" | "*" | "+" | ">" | "`" | "``" | "**")
            || text.starts_with("```")
            || (text.len() < 80 && text.len() > 1 && text.chars().all(|letter| letter == '-'))
            || (text.len() < 6 && digits.is_empty());
        if !is_undecided || self.start.len() > 200 {
            self.begin_text(out);
        }
    }

    /// Prints the start of a line once its kind is known.
    fn begin_text(&mut self, out: &mut String) {
        self.flush_table(out);
        self.is_at_start = false;
        let start = std::mem::take(&mut self.start);
        if self.in_fence {
            out.push_str(CYAN);
            out.push_str(&start);
            return;
        }
        let indent: String = start.chars().take_while(|letter| letter.is_whitespace()).collect();
        let text = &start[indent.len()..];
        out.push_str(&indent);
        let hashes = text.chars().take_while(|letter| *letter == '#').count();
        let rest = if (1..=6).contains(&hashes) && text[hashes..].starts_with(' ') {
            self.is_heading = true;
            out.push_str(BOLD);
            text[hashes..].trim_start()
        } else if let Some(rest) = ["- ", "* ", "+ "].iter().find_map(|mark| text.strip_prefix(mark)) {
            out.push_str("• ");
            rest
        } else if let Some(rest) = text.strip_prefix("> ") {
            out.push_str("│ ");
            rest
        } else {
            text
        };
        for letter in rest.chars() {
            self.inline(letter, out);
        }
    }

    fn end_line(&mut self, out: &mut String) {
        if self.is_at_start {
            let line = self.start.trim().to_owned();
            if line.starts_with("```") {
                self.flush_table(out);
                self.in_fence = !self.in_fence;
                self.start.clear();
                return;
            }
            if self.is_table_row && !self.in_fence {
                let cells = line
                    .trim_matches('|')
                    .split('|')
                    .map(|cell| cell.trim().replace("**", "").replace('`', ""));
                self.rows.push(cells.collect());
                self.start.clear();
                self.is_table_row = false;
                return;
            }
            self.flush_table(out);
            if line.len() >= 3 && line.chars().all(|letter| letter == '-') && !self.in_fence {
                out.push_str(&format!("{DIM}{}{RESET}\n", "─".repeat(self.columns.min(60))));
                self.start.clear();
                return;
            }
            if !self.start.is_empty() {
                self.begin_text(out);
            }
        }
        self.end_inline(out);
        out.push('\n');
        self.is_at_start = true;
        self.start.clear();
    }

    /// Ends the styles of a line: an unclosed one must not colour the rest of the session.
    fn end_inline(&mut self, out: &mut String) {
        self.stars(None, out);
        if !self.link.is_empty() {
            out.push_str(&std::mem::take(&mut self.link));
        }
        if self.is_escaped {
            out.push('\\');
            self.is_escaped = false;
        }
        if self.is_heading || self.is_bold || self.is_italic || self.is_code || self.in_fence {
            out.push_str(RESET);
        }
        (self.is_heading, self.is_bold, self.is_italic, self.is_code) = (false, false, false, false);
    }

    fn inline(&mut self, letter: char, out: &mut String) {
        if self.in_fence {
            out.push(letter);
            return;
        }
        if self.is_escaped {
            self.is_escaped = false;
            out.push(letter);
            return;
        }
        if !self.link.is_empty() {
            return self.link_letter(letter, out);
        }
        if letter == '*' && !self.is_code {
            self.stars += 1;
            return;
        }
        if self.stars > 0 {
            self.stars(Some(letter), out);
        }
        match letter {
            '`' => {
                self.is_code = !self.is_code;
                self.restyle(out);
            }
            '\\' if !self.is_code => self.is_escaped = true,
            '[' if !self.is_code => self.link.push('['),
            letter => out.push(letter),
        }
    }

    /// Gives meaning to a run of asterisks, by the character after it.
    fn stars(&mut self, next: Option<char>, out: &mut String) {
        let count = std::mem::take(&mut self.stars);
        let may_open = next.is_some_and(|letter| !letter.is_whitespace());
        match count {
            0 => return,
            1 if self.is_italic || may_open => self.is_italic = !self.is_italic,
            2 if self.is_bold || may_open => self.is_bold = !self.is_bold,
            3 if self.is_bold || may_open => {
                self.is_bold = !self.is_bold;
                self.is_italic = !self.is_italic;
            }
            count => {
                out.push_str(&"*".repeat(count));
                return;
            }
        }
        self.restyle(out);
    }

    fn restyle(&self, out: &mut String) {
        out.push_str(RESET);
        if self.is_bold || self.is_heading {
            out.push_str(BOLD);
        }
        if self.is_italic {
            out.push_str("\x1b[3m");
        }
        if self.is_code {
            out.push_str(CYAN);
        }
    }

    fn link_letter(&mut self, letter: char, out: &mut String) {
        self.link.push(letter);
        let Some(end) = self.link.find(']') else {
            if self.link.len() > MAX_LINK {
                out.push_str(&std::mem::take(&mut self.link));
            }
            return;
        };
        let rest = &self.link[end + 1..];
        if rest.is_empty() {
            return;
        }
        if !rest.starts_with('(') || rest.len() > MAX_LINK {
            out.push_str(&std::mem::take(&mut self.link));
        } else if let Some(url) = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            let text = &self.link[1..end];
            out.push_str(&format!("\x1b[4m{text}{RESET} {DIM}<{url}>{RESET}"));
            self.link.clear();
            self.restyle(out);
        }
    }

    fn flush_table(&mut self, out: &mut String) {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return;
        }
        let is_rule = |row: &[String]| {
            !row.is_empty()
                && row
                    .iter()
                    .all(|cell| !cell.is_empty() && cell.chars().all(|it| matches!(it, '-' | ':' | ' ')))
        };
        let has_header = rows.len() > 1 && is_rule(&rows[1]);
        let (header, body) = if has_header { (&rows[0][..], &rows[2..]) } else { (&[][..], &rows[..]) };
        for line in table(header, body, self.columns) {
            out.push_str(&line);
            out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> String {
        let mut markdown = Markdown::new(80);
        let mut out = markdown.push(text);
        out.push_str(&markdown.finish());
        out
    }

    #[test]
    fn every_split_gives_the_same_output() {
        let text = "# Title\n\nA **bold** and *slanted* word, `code`, 2 * 3, [link](http://x).\n- one\n- two\n\n| 名 | b |\n|---|---|\n| 1 | 2 |\n\n```rust\nlet x = **1**;\n```\n---\nend";
        let whole = rendered(text);
        for at in text.char_indices().map(|(at, _)| at) {
            let mut markdown = Markdown::new(80);
            let mut out = markdown.push(&text[..at]);
            out.push_str(&markdown.push(&text[at..]));
            out.push_str(&markdown.finish());
            assert_eq!(out, whole, "{at}");
        }
        assert!(whole.contains("│ 1  │ 2 │"), "{whole}");
        assert!(whole.contains("2 * 3"), "{whole}");
        assert!(whole.contains("let x = **1**;"), "{whole}");
        assert!(!whole.contains("```"), "{whole}");
    }

    #[test]
    fn plain_text_is_printed_at_once() {
        let mut markdown = Markdown::new(80);
        assert_eq!(markdown.push("Hel"), "Hel");
        assert_eq!(markdown.push("lo\x1b!"), "lo!");
        assert_eq!(markdown.finish(), "");
    }
}
