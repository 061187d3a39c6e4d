//! `agentwire redact`: replaces personal data and secrets in a recording by stable pseudonyms.
//!
//! 1. The rules of an agent, if given, as the gateway applies them.
//! 2. Streamed text and arguments, joined: a value may be spread over several deltas.
//! 3. Every string of every event, in its AG-UI form; JSON inside strings is looked into.
//!
//! Native events (`rawEvent`, RAW) are removed: they have the same values in pieces of unknown shape.

mod shapes;
mod streams;

use std::{fs::File, io::Write, path::Path};

use agentwire_core::{
    event::{Body, Event},
    format::{Options, Setup, ag_ui},
    framing::{Frames, Framing},
    order::Guard,
    source::{Source, SourceOptions},
};
use agentwire_gateway::hooks::{ConfiguredHooks, HookOptions};

use self::shapes::Pseudonyms;
use crate::{
    check::counted,
    cli::Redact,
    config::ConfigFile,
    error::{Class, Error, ExitCode, Result},
    recording::Recording,
};

pub(crate) fn run(arguments: &Redact) -> Result<ExitCode> {
    if arguments.input == arguments.output && arguments.input != Path::new("-") {
        let message = format!("`{}` is the input, expected another file", arguments.output.display());
        return Err(Error::new(Class::Usage, message));
    }
    let recording = Recording::read(&arguments.input, arguments.from.as_deref(), arguments.max_frame)?;
    let (format, framing) = (recording.writable_format(), recording.framing);
    let events = match &arguments.config {
        Some(path) => apply_rules(path, arguments.agent.as_deref(), recording.events)?,
        None => recording.events,
    };
    let mut pseudonyms = Pseudonyms::new(&arguments.preset, &arguments.text);
    let (events, removed) = redacted(events, &mut pseudonyms)?;

    let profile = format.profiles.first().expect("a writer has a profile");
    let framing = if format.reads.contains(&framing) { framing } else { profile.framing };
    // The profile of the recording: the one that is written in its framing.
    let profile = format.profiles.iter().find(|it| it.framing == framing).unwrap_or(profile);
    let framing =
        if framing == Framing::Lines && profile.framing == Framing::Sse { framing } else { profile.framing };
    let options = Options::default();
    let setup = Setup { thread: "thread".into(), run: "run".into(), options: &options };
    let mut writer = format.writer.expect("the format has a writer")(profile, &setup);
    let mut frames = Frames::new(framing);
    for event in &events {
        writer.write(event, &mut frames);
        frames.finish_event(None);
    }
    writer.end(&mut frames);
    write(&arguments.output, &frames.take())?;
    for (kind, values, places) in pseudonyms.counts() {
        eprintln!("{kind}: {} in {}", counted(values as u64, "value"), counted(places as u64, "place"));
    }
    if removed > 0 {
        eprintln!("note: removed {}", counted(removed, "native event"));
    }
    if format.name != recording.format.name {
        eprintln!("note: `{}` cannot be written; the output is `{}`", recording.format.name, format.name);
    }
    Ok(ExitCode::SUCCESS)
}

/// Applies the rules of an agent of a configuration.
fn apply_rules(path: &Path, agent: Option<&str>, events: Vec<Event>) -> Result<Vec<Event>> {
    let file = ConfigFile::load(path)?;
    let agents = &file.config.agents;
    let names: Vec<_> = agents.iter().map(|agent| agent.name.as_str()).collect();
    let found = match (agent, agents.as_slice()) {
        (Some(name), _) => agents.iter().find(|agent| agent.name == name),
        (None, [one]) => Some(one),
        (None, _) => None,
    };
    let Some(found) = found else {
        let message = format!("`{}` has the agents {}", path.display(), names.join(", "));
        return Err(Error::new(Class::Usage, message).hint("--agent names one of them"));
    };
    let options = HookOptions { rules: found.hooks.rules.clone(), ..HookOptions::default() };
    let hooks = ConfiguredHooks::new(options).map_err(|error| Error::new(Class::Usage, error.to_string()))?;
    let mut rules = hooks.rules_of("thread".into(), "run".into());
    let mut guard = Guard::new("thread", "run");
    let (mut out, mut valid) = (Vec::new(), Vec::new());
    for event in events {
        rules.apply(event, &mut out).map_err(|error| Error::new(Class::Input, error.to_string()))?;
        for event in out.drain(..) {
            guard.push(event, &mut valid);
        }
    }
    Ok(valid)
}

/// Replaces the values in all events; returns the number of removed native events too.
pub(crate) fn redacted(mut events: Vec<Event>, pseudonyms: &mut Pseudonyms) -> Result<(Vec<Event>, u64)> {
    let mut removed = 0;
    events.retain_mut(|event| {
        if let Some(extra) = &mut event.extra
            && extra.raw.take().is_some()
        {
            removed += 1;
        }
        let is_raw = matches!(event.body, Body::Raw { .. });
        removed += u64::from(is_raw);
        !is_raw
    });
    let events = streams::joined(events, pseudonyms);
    let options = Options::default();
    let setup = Setup { thread: "thread".into(), run: "run".into(), options: &options };
    let mut writer = ag_ui::FORMAT.writer.expect("AG-UI has a writer")(&ag_ui::FORMAT.profiles[0], &setup);
    let mut frames = Frames::new(Framing::Lines);
    let mut source = Source::new(
        &ag_ui::FORMAT,
        Framing::Lines,
        &SourceOptions { max_frame: usize::MAX / 4, ..SourceOptions::default() },
    )
    .expect("AG-UI has a reader");
    let mut guard = Guard::new("thread", "run");
    let (mut read, mut valid) = (Vec::new(), Vec::new());
    for event in &events {
        writer.write(event, &mut frames);
        frames.finish_event(None);
        let lines = frames.take();
        for line in String::from_utf8_lossy(&lines).lines() {
            let mut value = serde_json::from_str(line)
                .map_err(|error| Error::new(Class::Input, format!("an event is not JSON: {error}")))?;
            pseudonyms.replace_in_event(&mut value);
            source.push(format!("{value}\n").as_bytes());
            while let Some(step) = source.step(&mut read) {
                step.map_err(|error| {
                    Error::new(Class::Input, format!("an event is invalid after its change: {error}"))
                })?;
            }
            for event in read.drain(..) {
                guard.push(event, &mut valid);
            }
        }
    }
    Ok((valid, removed))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let fail = |error: std::io::Error| {
        Error::new(Class::Io, format!("`{}` could not be written: {error}", path.display()))
    };
    if path == Path::new("-") {
        let mut out = std::io::stdout().lock();
        return match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => {
                other.map_err(|error| Error::new(Class::Io, format!("stdout could not be written: {error}")))
            }
        };
    }
    let mut file = File::create(path).map_err(fail)?;
    file.write_all(bytes).map_err(fail)
}
