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
    /// The problem.
    pub message: String,
    /// The allowed values, or the one that was probably meant.
    pub hint: Option<String>,
}

impl From<Error> for BadArgument {
    fn from(error: Error) -> Self {
        Self { message: error.message, hint: error.hint }
    }
}

/// Finds formats and options. `to` may name a profile; options are `key=value`, `from.key=value` or `to.key=value`. `now`
/// is the time in milliseconds, for formats whose events all have one.
///
/// # Errors
/// When a format, a profile or an option does not exist.
pub fn resolve(from: &str, to: &str, options: &[String], now: i64) -> Result<Conversion, BadArgument> {
    let from = formats::reader(from)?;
    let (to, profile) = formats::writer(to)?;
    let mut pairs = options.to_vec();
    convert::add_time(&mut pairs, to, now);
    let (reading, writing) = formats::options(&pairs, from, to)?;
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
