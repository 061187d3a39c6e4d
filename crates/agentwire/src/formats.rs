//! `agentwire formats`, and the format arguments of other commands.

use agentwire_core::format::{FORMATS, Format, OptionError, Options, Profile};

use crate::error::{Class, Error, ExitCode, Result, nearest};

/// Prints the table of formats.
pub(crate) fn run() -> Result<ExitCode> {
    for format in FORMATS {
        println!("\x1b[1m{}\x1b[0m  {}", format.name, format.about);
        let framings: Vec<_> = format.reads.iter().map(|framing| framing.name()).collect();
        let reads = if framings.is_empty() { "no".to_owned() } else { framings.join(", ") };
        println!("  reads   {reads}");
        if format.profiles.is_empty() {
            println!("  writes  no");
        }
        for (index, profile) in format.profiles.iter().enumerate() {
            let lead = if index == 0 { "  writes  " } else { "          " };
            let default = if index == 0 { " (default)" } else { "" };
            println!(
                "{lead}{}@{}  {}, {}{default}",
                format.name,
                profile.name,
                profile.about,
                profile.framing.name()
            );
        }
        for (index, option) in format.options.iter().enumerate() {
            let lead = if index == 0 { "  options " } else { "          " };
            let values = if option.values.is_empty() { "TEXT".to_owned() } else { option.values.join("|") };
            println!("{lead}{}={values}  {}", option.name, option.about);
        }
        println!();
    }
    Ok(ExitCode::SUCCESS)
}

/// The format of `--from`. A profile is accepted without effect: readers decode every profile.
pub(crate) fn reader(name: &str) -> Result<&'static Format> {
    let (format, profile) = split_profile(name);
    let found = find(format, "reader", |format| format.reader.is_some())?;
    match profile {
        Some(profile) if find_profile(found, profile).is_none() => Err(unknown_profile(found, profile)),
        _ => Ok(found),
    }
}

/// The format and profile of `--to`.
pub(crate) fn writer(name: &str) -> Result<(&'static Format, &'static Profile)> {
    let (format, profile) = split_profile(name);
    let found = find(format, "writer", |format| format.writer.is_some())?;
    let profile = match profile {
        Some(profile) => find_profile(found, profile).ok_or_else(|| unknown_profile(found, profile))?,
        None => found.profiles.first().expect("a format with a writer has a profile"),
    };
    Ok((found, profile))
}

fn split_profile(name: &str) -> (&str, Option<&str>) {
    name.split_once('@').map_or((name, None), |(format, profile)| (format, Some(profile)))
}

fn find_profile(format: &'static Format, profile: &str) -> Option<&'static Profile> {
    format.profiles.iter().find(|candidate| candidate.name == profile)
}

fn find(name: &str, direction: &str, is_supported: fn(&Format) -> bool) -> Result<&'static Format> {
    let names: Vec<_> =
        FORMATS.iter().filter(|format| is_supported(format)).map(|format| format.name).collect();
    match Format::find(name) {
        Some(format) if is_supported(format) => Ok(format),
        Some(format) => {
            let verb = if direction == "reader" { "write" } else { "read" };
            let error = Error::new(Class::Usage, format!("format `{name}` has no {direction}"));
            Err(error.hint(format!(
                "agentwire can {verb} {}, nothing more ({direction}s: {})",
                format.name,
                names.join(", ")
            )))
        }
        None => {
            let error = Error::new(Class::Usage, format!("unknown format `{name}`"));
            let known = format!("{direction}s: {}", names.join(", "));
            Err(error.hint(match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`? ({known})"),
                None => known,
            }))
        }
    }
}

fn unknown_profile(format: &Format, profile: &str) -> Error {
    let known: Vec<_> = format.profiles.iter().map(|profile| profile.name).collect();
    let error = Error::new(Class::Usage, format!("unknown profile `{profile}` of format `{}`", format.name));
    let all = if known.is_empty() {
        format!("`{}` has no profiles", format.name)
    } else {
        format!("profiles: {}", known.join(", "))
    };
    error.hint(match nearest(profile, known) {
        Some(near) => format!("did you mean `{}@{near}`? ({all})", format.name),
        None => all,
    })
}

/// Checks `-O` pairs and passes each to the reader or the writer. `from.KEY` and `to.KEY` name the side; a bare key belongs
/// to the side that has the option, and to the reader if both do.
pub(crate) fn options(pairs: &[String], from: &Format, to: &Format) -> Result<(Options, Options)> {
    let has = |format: &Format, key: &str| format.options.iter().any(|option| option.name == key);
    let (mut reading, mut writing) = (Vec::new(), Vec::new());
    for pair in pairs {
        let key = pair.split_once('=').map_or(pair.as_str(), |(key, _)| key);
        if let Some(own) = pair.strip_prefix("from.") {
            known_option(key, &own[..key.len() - "from.".len()], &[from], pair)?;
            reading.push(own);
        } else if let Some(own) = pair.strip_prefix("to.") {
            known_option(key, &own[..key.len() - "to.".len()], &[to], pair)?;
            writing.push(own);
        } else {
            known_option(key, key, &[from, to], pair)?;
            let is_read = has(from, key) && !(from.options_are_for_writing && has(to, key));
            if is_read || !has(to, key) { &mut reading } else { &mut writing }.push(pair);
        }
    }
    let parse = |pairs: Vec<&str>, format: &Format| {
        Options::parse(pairs, format.options)
            .map_err(|error: OptionError| Error::new(Class::Usage, error.to_string()))
    };
    Ok((parse(reading, from)?, parse(writing, to)?))
}

/// Checks `-O` pairs of a command that reads only, and returns them without `from.`. The options cannot be checked as
/// long as the format is not known.
pub(crate) fn reader_options(pairs: &[String], format: Option<&Format>) -> Result<Vec<String>> {
    if let Some(pair) = pairs.iter().find(|pair| pair.starts_with("to.")) {
        let key = pair.split_once('=').map_or(pair.as_str(), |(key, _)| key);
        let error = Error::new(Class::Usage, format!("option `{key}` is not for reading"));
        return Err(error
            .hint("here `-O` sets options of the agent's format; output formats have their own settings"));
    }
    let own: Vec<String> =
        pairs.iter().map(|pair| pair.strip_prefix("from.").unwrap_or(pair).to_owned()).collect();
    if let Some(format) = format {
        for pair in &own {
            let key = pair.split_once('=').map_or(pair.as_str(), |(key, _)| key);
            known_option(key, key, &[format], pair)?;
        }
        Options::parse(own.iter().map(String::as_str), format.options)
            .map_err(|error: OptionError| Error::new(Class::Usage, error.to_string()))?;
    }
    Ok(own)
}

/// Refuses an option `key` that none of `formats` has; `shown` is the key as it was given.
fn known_option(shown: &str, key: &str, formats: &[&Format], pair: &str) -> Result<()> {
    let known: Vec<_> = formats.iter().flat_map(|format| format.options).map(|option| option.name).collect();
    if !pair.contains('=') || known.contains(&key) {
        return Ok(());
    }
    let error = Error::new(Class::Usage, format!("unknown option `{shown}`"));
    let mut distinct = known.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let all = match distinct.as_slice() {
        [] if formats.len() == 1 => "this format has no options".to_owned(),
        [] => "these formats have no options".to_owned(),
        names => format!("options: {}", names.join(", ")),
    };
    Err(error.hint(match nearest(key, known) {
        Some(near) => format!("did you mean `{near}`? ({all})"),
        None => all,
    }))
}
