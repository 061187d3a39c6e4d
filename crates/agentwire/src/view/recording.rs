//! A recording as the page of `agentwire view` shows it: a line per event with its bytes in three protocols, and the
//! violations at their events.

use std::{collections::BTreeMap, path::Path};

use agentwire_core::{
    event::{Event, StreamEnd},
    format::{Format, Options, Setup, Writer, ag_ui, ai_sdk, hai},
    framing::{Frames, Framing},
    order::{Checker, Guard},
    source::{Source, SourceOptions},
};
use serde_json::{Value, json};

use crate::{
    convert::wrong_format_error,
    error::{Class, Error, Result},
    formats,
    input::{CHUNK, Input},
};

/// Events that are shown at most: a page that holds more would need too much memory.
const MAX_EVENTS: usize = 200_000;

/// The longest frame of the recording that is shown, in bytes.
const MAX_RAW: usize = 64 << 10;

/// The lines of a recording: its head, then one line for each event.
pub(super) fn read(path: &Path, from: Option<&str>, max_frame: usize) -> Result<String> {
    let mut input = Input::open(path)?;
    let given = from.map(formats::reader).transpose()?;
    let format = given.or_else(|| input.format()).unwrap_or(&ag_ui::FORMAT);
    let framing = match input.framing(format.reads) {
        Ok(framing) => framing,
        Err(foreign) if foreign.is_empty() => format.reads.first().copied().unwrap_or(Framing::Lines),
        Err(foreign) => {
            let message = format!("`{}` is not valid {}: {foreign}", input.name, format.name);
            return Err(Error::new(Class::Input, message));
        }
    };
    let mut bytes = Vec::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match input.read(&mut chunk)? {
            0 => break,
            read => bytes.extend_from_slice(&chunk[..read]),
        }
    }
    let violations = violations(format, framing, &bytes, max_frame);
    let mut recording = Recording::new(violations);
    recording.read(format, framing, &bytes, max_frame);
    if let Some(similar) = input.similar_format(format)
        && recording.count == 0
    {
        return Err(wrong_format_error(&input.name, format, similar));
    }
    let mut head = json!({"name": input.name, "format": format.name});
    if recording.count > MAX_EVENTS {
        head["note"] = format!("{} of {} events", MAX_EVENTS, recording.count).into();
    }
    Ok(format!("{head}\n{}", recording.lines))
}

/// The violations by frame, as `agentwire check` finds them; those at the end have the number after the last frame.
fn violations(
    format: &Format,
    framing: Framing,
    bytes: &[u8],
    max_frame: usize,
) -> BTreeMap<u64, Vec<String>> {
    let strict = format.strict_options.iter().copied();
    let options = Options::parse(strict, format.options).expect("the options are the format's own");
    let options = SourceOptions { options, max_frame, ..SourceOptions::default() };
    let mut source = Source::new(format, framing, &options).expect("the format has a reader");
    let mut checker = format.ordered.then(Checker::new);
    let mut found: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let (mut events, mut last) = (Vec::new(), 0);
    source.push(bytes);
    source.finish();
    let name = |message: String| {
        format.checked_names.iter().fold(message, |text, (name, own)| text.replace(name, own))
    };
    let mut check = |checker: &mut Option<Checker>, events: &mut Vec<Event>, frame: u64| {
        for event in events.drain(..) {
            if let Some(violation) = checker.as_mut().and_then(|checker| checker.check(&event)) {
                let message = format!("expected {}, found {}", violation.expected, violation.found);
                let text = format!("{}: {}", violation.rule.name(), name(message));
                found.entry(frame).or_default().push(text);
            }
        }
    };
    let mut malformed = Vec::new();
    loop {
        let (frames, reader) = source.parts();
        let (index, result) = match frames.next_frame() {
            None => break,
            Some(Err(error)) => (error.index, Err(error)),
            Some(Ok(frame)) => (frame.index, reader.read_frame(&frame, &mut events)),
        };
        last = index + 1;
        if let Err(error) = result {
            malformed.push((index, format!("malformed: {}", error.problem)));
        }
        check(&mut checker, &mut events, index);
    }
    source.end(&StreamEnd::Closed, &mut events);
    check(&mut checker, &mut events, last);
    if let Some(violation) = checker.as_mut().and_then(Checker::end) {
        let message = format!("expected {}, found {}", violation.expected, violation.found);
        found.entry(last).or_default().push(format!("{}: {}", violation.rule.name(), name(message)));
    }
    for (index, text) in malformed {
        found.entry(index).or_default().push(text);
    }
    found
}

/// A writer of one protocol with its frames.
struct Output {
    writer: Box<dyn Writer>,
    frames: Frames,
}

impl Output {
    fn new(format: &'static Format, framing: Option<Framing>) -> Self {
        let options = Options::default();
        let setup = Setup { thread: "thread".into(), run: "run".into(), options: &options };
        let profile = &format.profiles[0];
        let make = format.writer.expect("the format has a writer");
        let framing = framing.unwrap_or(profile.framing);
        Self { writer: make(profile, &setup), frames: Frames::new(framing) }
    }

    fn write(&mut self, events: &[Event]) -> String {
        for event in events {
            self.writer.write(event, &mut self.frames);
            self.frames.finish_event(None);
        }
        String::from_utf8_lossy(&self.frames.take()).into_owned()
    }
}

/// The lines of a recording while it is read.
struct Recording {
    violations: BTreeMap<u64, Vec<String>>,
    /// The event itself, valid or not.
    own: Output,
    guard: Guard,
    outputs: [(&'static str, Output); 3],
    lines: String,
    count: usize,
}

impl Recording {
    fn new(violations: BTreeMap<u64, Vec<String>>) -> Self {
        let outputs = [("agUi", &ag_ui::FORMAT), ("hai", &hai::FORMAT), ("aiSdk", &ai_sdk::FORMAT)];
        Self {
            violations,
            own: Output::new(&ag_ui::FORMAT, Some(Framing::Lines)),
            guard: Guard::new("thread", "run"),
            outputs: outputs.map(|(name, format)| (name, Output::new(format, None))),
            lines: String::new(),
            count: 0,
        }
    }

    fn read(&mut self, format: &Format, framing: Framing, bytes: &[u8], max_frame: usize) {
        let options = SourceOptions { max_frame, ..SourceOptions::default() };
        let mut source = Source::new(format, framing, &options).expect("the format has a reader");
        source.push(bytes);
        source.finish();
        let (mut events, mut last) = (Vec::new(), 0);
        loop {
            let (frames, reader) = source.parts();
            let (index, raw, problem) = match frames.next_frame() {
                None => break,
                Some(Err(error)) => (error.index, None, Some(error.problem.to_string())),
                Some(Ok(frame)) => {
                    let raw = match framing {
                        Framing::Sse | Framing::Lines | Framing::Array => Some(shortened(frame.text())),
                        _ => None,
                    };
                    let read = reader.read_frame(&frame, &mut events);
                    (frame.index, raw, read.err().map(|error| error.problem.to_string()))
                }
            };
            last = index + 1;
            self.add(index, raw, problem, &mut events);
        }
        source.end(&StreamEnd::Closed, &mut events);
        self.add(last, None, None, &mut events);
    }

    /// Adds the events of a frame. A frame without one is shown if it is malformed or breaks a rule.
    fn add(&mut self, frame: u64, raw: Option<String>, problem: Option<String>, events: &mut Vec<Event>) {
        let mut broken = self.violations.remove(&frame).map(|found| found.join("; "));
        if events.is_empty() {
            if let Some(text) = broken.or(problem.map(|problem| format!("malformed: {problem}"))) {
                let kind = if raw.is_some() { "FRAME" } else { "END" };
                self.push(json!({ "type": kind }), raw, Some(text), &[]);
            }
            return;
        }
        let mut raw = raw;
        for event in events.drain(..) {
            let text = self.own.write(std::slice::from_ref(&event));
            let shown = serde_json::from_str(text.trim()).unwrap_or_else(|_| json!({"type": event.kind()}));
            let mut valid = Vec::new();
            self.guard.push(event, &mut valid);
            self.push(shown, raw.take(), broken.take(), &valid);
        }
    }

    fn push(&mut self, event: Value, raw: Option<String>, violation: Option<String>, valid: &[Event]) {
        self.count += 1;
        let mut line = json!({"seq": self.count - 1, "event": event});
        for (name, output) in &mut self.outputs {
            let bytes = output.write(valid);
            if !bytes.is_empty() {
                line[*name] = bytes.into();
            }
        }
        if let Some(raw) = raw {
            line["raw"] = raw.into();
        }
        if let Some(violation) = violation {
            line["violation"] = violation.into();
        }
        if self.count <= MAX_EVENTS {
            self.lines.push_str(&line.to_string());
            self.lines.push('\n');
        }
    }
}

fn shortened(text: &str) -> String {
    let end = (0..=MAX_RAW.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() }
}
