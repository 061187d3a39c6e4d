//! Errors of commands: a message, a hint, and a fixed exit code per class.

use std::fmt;

use crate::config::mask;

/// The class of a failure. The numbers are exit codes and part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// `check` found violations.
    Violations = 1,
    /// The command was used wrongly; clap uses the same number.
    Usage = 2,
    /// The input is malformed.
    Input = 3,
    /// A file or pipe could not be read or written.
    Io = 4,
    /// A server could not be reached or refused the request.
    Server = 5,
}

/// The exit code of a command. Unlike the one of the standard library, its number can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExitCode(u8);

impl ExitCode {
    pub(crate) const SUCCESS: Self = Self(0);

    pub(crate) fn number(self) -> u8 {
        self.0
    }
}

impl From<u8> for ExitCode {
    fn from(number: u8) -> Self {
        Self(number)
    }
}

/// A failed command.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) class: Class,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// The complete text, for errors with more than a message and a hint.
    pub(crate) rendered: Option<String>,
    /// The exit code, if it is not that of the class.
    pub(crate) code: Option<u8>,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), hint: None, rendered: None, code: None }
    }

    /// An error with a complete text.
    pub(crate) fn rendered(class: Class, text: String) -> Self {
        Self { rendered: Some(text), ..Self::new(class, "") }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = Some(code);
        self
    }

    /// Prints the error and returns its exit code.
    pub(crate) fn report(self) -> ExitCode {
        anstream::eprint!("{}", self.render());
        ExitCode::from(self.code.unwrap_or(self.class as u8))
    }

    /// The complete text with ANSI colours.
    pub(crate) fn render(&self) -> String {
        if let Some(text) = &self.rendered {
            return text.clone();
        }
        let mut text = format!("\x1b[1;31merror\x1b[0m: {}\n", mask::urls(&self.message));
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\x1b[1;36mhint\x1b[0m: {hint}\n"));
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The name most similar to `given`, if any is similar enough.
pub(crate) fn nearest<'n>(given: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let given = given.to_lowercase();
    let similarity = |name: &str| strsim::jaro_winkler(&given, &name.to_lowercase());
    let scored = names.into_iter().map(|name| (similarity(name), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > 0.75).map(|(_, name)| name)
}

/// True if two names differ by one letter: one more, one less, another one, or two swapped. Short names are all alike.
pub(crate) fn is_one_letter_off(given: &str, name: &str) -> bool {
    const MIN_LETTERS: usize = 4;
    given.chars().count() >= MIN_LETTERS && strsim::osa_distance(given, name) == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_most_similar_name() {
        let names = ["ag-ui", "ag-ui-proto", "langgraph"];
        assert_eq!(nearest("agui", names), Some("ag-ui"));
        assert_eq!(nearest("langraph", names), Some("langgraph"));
        assert_eq!(nearest("AG-UI", names), Some("ag-ui"));
        assert_eq!(nearest("zzz", names), None);
    }

    #[test]
    fn tells_a_misspelled_name_from_another_one() {
        assert!(
            ["event", "evnets", "eventss", "evemts"].iter().all(|given| is_one_letter_off(given, "events"))
        );
        assert!(!["events", "even", "envelope"].iter().any(|given| is_one_letter_off(given, "events")));
        assert!(!is_one_letter_off("url", "uri"));
    }
}
