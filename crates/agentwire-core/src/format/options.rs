//! Options of formats: `-O key=value`.

use std::collections::BTreeMap;

use super::{Format, Profile};
use crate::event::RunInput;

/// An option of a format.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// The key.
    pub name: &'static str,
    /// The allowed values, the default one first; empty for any text, [`WHOLE_NUMBER`] alone for any whole number.
    pub values: &'static [&'static str],
    /// One line of description.
    pub about: &'static str,
}

/// The entry of [`OptionSpec::values`] that stands for all whole numbers.
pub const WHOLE_NUMBER: &str = "a whole number";

impl OptionSpec {
    /// Whether the option can be `value`.
    #[must_use]
    pub fn allows(&self, value: &str) -> bool {
        match self.values {
            [] => true,
            [WHOLE_NUMBER] => value.parse::<i64>().is_ok(),
            values => values.contains(&value),
        }
    }
}

/// Options that were validated against the [`OptionSpec`]s of a format.
#[derive(Clone, Debug, Default)]
pub struct Options {
    chosen: BTreeMap<&'static str, String>,
    request: Option<Box<RunInput>>,
    whole: bool,
}

/// An invalid option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// Not of the form `key=value`.
    #[error("option `{0}` is not of the form key=value")]
    NotAPair(String),
    /// No such option.
    #[error("unknown option `{name}` (known: {})", .known.join(", "))]
    UnknownName {
        /// The given text.
        name: String,
        /// The valid ones.
        known: Vec<&'static str>,
    },
    /// No such value.
    #[error("option `{name}` cannot be `{value}` (allowed: {})", .allowed.join(", "))]
    BadValue {
        /// The option.
        name: &'static str,
        /// The given text.
        value: String,
        /// The valid ones.
        allowed: Vec<&'static str>,
    },
}

impl Options {
    /// Validates `key=value` pairs against `specs`.
    ///
    /// # Errors
    /// When a key or value is unknown.
    pub fn parse<'p>(
        pairs: impl IntoIterator<Item = &'p str>,
        specs: &[OptionSpec],
    ) -> Result<Self, OptionError> {
        let mut options = BTreeMap::new();
        for pair in pairs {
            let (key, value) = pair.split_once('=').ok_or_else(|| OptionError::NotAPair(pair.to_owned()))?;
            let spec =
                specs.iter().find(|spec| spec.name == key).ok_or_else(|| OptionError::UnknownName {
                    name: key.to_owned(),
                    known: specs.iter().map(|spec| spec.name).collect(),
                })?;
            if !spec.allows(value) {
                return Err(OptionError::BadValue {
                    name: spec.name,
                    value: value.to_owned(),
                    allowed: spec.values.to_vec(),
                });
            }
            options.insert(spec.name, value.to_owned());
        }
        Ok(Self { chosen: options, request: None, whole: false })
    }

    /// The same options for a stream whose request is known. The request holds data that is not in the stream: the
    /// conversation and the state before the run, and the tools of the user interface.
    #[must_use]
    pub fn for_request(mut self, request: RunInput) -> Self {
        self.request = Some(Box::new(request));
        self
    }

    /// The same options for a client without the message that the stream may continue: a format whose messages span
    /// runs writes that message from its start.
    #[must_use]
    pub fn with_whole_message(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Whether a message that the stream continues is written from its start.
    pub(crate) fn whole_message(&self) -> bool {
        self.whole
    }

    /// The same options for a stream that is written as `profile`: adds the profile's default options for a reader of
    /// `format`.
    #[must_use]
    pub fn for_profile(mut self, format: &Format, profile: &Profile) -> Self {
        for (name, value) in profile.asks {
            if format.options.iter().any(|spec| spec.name == *name) {
                self.chosen.entry(name).or_insert_with(|| (*value).to_owned());
            }
        }
        self
    }

    /// The request of the stream, where it is known.
    #[must_use]
    pub fn request(&self) -> Option<&RunInput> {
        self.request.as_deref()
    }

    /// The chosen value of an option, if there is one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.chosen.get(name).map(String::as_str)
    }

    /// Whether `value` was chosen for an option.
    #[must_use]
    pub fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[OptionSpec] = &[
        OptionSpec { name: "steps", values: &["nodes", "none"], about: "" },
        OptionSpec { name: "hide", values: &[], about: "" },
        OptionSpec { name: "time", values: &[WHOLE_NUMBER], about: "" },
    ];

    #[test]
    fn checks_names_and_values() {
        let options = Options::parse(["steps=none", "hide=a=b"], SPECS).unwrap();
        assert!(options.is("steps", "none"));
        assert_eq!(options.get("hide"), Some("a=b"));
        let refused = |pair| Options::parse([pair], SPECS).unwrap_err().to_string();
        assert_eq!(refused("steps"), "option `steps` is not of the form key=value");
        assert_eq!(refused("step=x"), "unknown option `step` (known: steps, hide, time)");
        assert_eq!(refused("steps=x"), "option `steps` cannot be `x` (allowed: nodes, none)");
        assert_eq!(refused("time=1x"), "option `time` cannot be `1x` (allowed: a whole number)");
        assert!(Options::parse(["time=-17"], SPECS).unwrap().is("time", "-17"));
    }
}
