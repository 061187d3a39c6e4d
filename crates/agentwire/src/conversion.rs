//! The formats and options of a conversion by their names, as on the command line; for the Python package.

use agentwire_core::{
    convert::Report,
    format::{Format, Options, Profile},
};

use crate::{convert, error::Error, formats};

/// The formats and options of a conversion.
#[derive(Debug)]
pub struct Conversion {
    /// The format of the input.
    pub from: &'static Format,
    /// The format of the output.
    pub to: &'static Format,
    /// Its profile.
    pub profile: &'static Profile,
    /// The options of the reader.
    pub reading: Options,
    /// The options of the writer.
    pub writing: Options,
}

/// A name or option that does not exist.
#[derive(Debug)]
pub struct BadArgument {
    /// The argument.
    pub argument: Argument,
    /// The problem.
    pub message: String,
    /// The allowed values, or the one that was probably meant.
    pub hint: Option<String>,
}

/// An argument of [`resolve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The format of the input.
    From,
    /// The format of the output.
    To,
    /// The option with this key, which may begin with `from.` or `to.`.
    Option(String),
}

impl BadArgument {
    fn new(argument: Argument, error: Error) -> Self {
        Self { argument, message: error.message, hint: error.hint }
    }
}

/// Finds formats and options. `to` may name a profile; options are `key=value`, `from.key=value` or `to.key=value`. `now`
/// is the time in milliseconds, for formats whose events all have one.
///
/// # Errors
/// When a format, a profile or an option does not exist.
pub fn resolve(from: &str, to: &str, options: &[String], now: i64) -> Result<Conversion, BadArgument> {
    let from = formats::reader(from).map_err(|error| BadArgument::new(Argument::From, error))?;
    let (to, profile) = formats::writer(to).map_err(|error| BadArgument::new(Argument::To, error))?;
    // One by one, so that the error names the option.
    for pair in options {
        let key = pair.split_once('=').map_or(pair.as_str(), |(key, _)| key);
        formats::options(std::slice::from_ref(pair), from, to)
            .map_err(|error| BadArgument::new(Argument::Option(key.to_owned()), error))?;
    }
    let mut pairs = options.to_vec();
    convert::add_time(&mut pairs, to, now);
    let (reading, writing) = formats::options(&pairs, from, to)
        .map_err(|error| BadArgument::new(Argument::Option(String::new()), error))?;
    Ok(Conversion { from, to, profile, reading, writing })
}

/// A report as `convert --report` prints it.
#[must_use]
pub fn report_text(report: &Report) -> String {
    convert::report_text(report)
}

/// A report as `convert --report=json` prints it.
#[must_use]
pub fn report_json(report: &Report) -> serde_json::Value {
    convert::report_json(report)
}
