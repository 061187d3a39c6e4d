//! `agentwire check`: lists the violations in a stream from a file, a pipe or a running server.

use std::{fmt::Display, path::Path};

use agentwire_core::{
    Tally,
    event::{Body, Event, RunId, StreamEnd, ThreadId},
    format::{Format, Options, ag_ui},
    framing::Framing,
    order::Checker,
    source::{InputProblem, Source, SourceOptions, likelier_format},
};

use crate::{
    cli::Check,
    convert::{looks_like, wrong_format_error},
    error::{Class, Error, ExitCode, Result},
    formats,
    input::{CHUNK, Input},
    print, remote,
};

/// Number of bytes that are compared with the other formats.
const START_BYTES: usize = 64 << 10;

/// Maximum number of printed violations; further ones are only counted.
const MAX_PRINTED: u64 = 100;

pub(crate) fn run(arguments: &Check) -> Result<ExitCode> {
    let given = arguments.from.as_deref().map(formats::reader).transpose()?;
    let inspection = if is_url(&arguments.input) {
        remote::check(arguments, given.unwrap_or(&ag_ui::FORMAT))?
    } else {
        let mut input = Input::open(Path::new(&arguments.input))?;
        let format = given.or_else(|| {
            let found = input.format()?;
            eprintln!(
                "note: `{}` is checked as {} (detected; --from names the format)",
                input.name, found.name
            );
            Some(found)
        });
        let format = format.unwrap_or(&ag_ui::FORMAT);
        let framing = match input.framing(format.reads) {
            Ok(framing) => framing,
            // An empty input is checked as an empty stream, so that the missing events are reported as violations.
            Err(foreign) if foreign.is_empty() => format.reads.first().copied().unwrap_or(Framing::Lines),
            Err(foreign) => {
                let error = Error::new(
                    Class::Input,
                    format!("`{}` is not valid {}: {foreign}", input.name, format.name),
                );
                return Err(match input.similar_format(format) {
                    Some(similar) => error.hint(looks_like(similar)),
                    None => error,
                });
            }
        };
        let mut inspection = Inspection::new(format, framing, arguments.max_frame);
        let mut chunk = vec![0; CHUNK];
        loop {
            match input.read(&mut chunk)? {
                0 => break,
                read => inspection.push(&chunk[..read]),
            }
        }
        inspection.end();
        inspection.compare_formats(&input.name, format)?;
        inspection
    };
    Ok(inspection.conclude())
}

/// Whether the input is the URL of a server. Schemes are case-insensitive.
fn is_url(input: &str) -> bool {
    let scheme = input.split_once("://").map_or("", |(scheme, _)| scheme);
    ["http", "https"].iter().any(|name| scheme.eq_ignore_ascii_case(name))
}

/// A stream under inspection.
pub(crate) struct Inspection {
    source: Source,
    checker: Option<Checker>,
    framing: Framing,
    unit: &'static str,
    events: Vec<Event>,
    seen: u64,
    violations: u64,
    /// True if there was an event that only its own format has.
    has_content: bool,
    /// The names of event types in messages; see `Format::checked_names`.
    names: &'static [(&'static str, &'static str)],
    has_carriage_return: bool,
    /// The start of the stream, up to [`START_BYTES`], and whether that is all.
    start: Vec<u8>,
    is_start_whole: bool,
    /// The requested thread and run, for the response of a server.
    requested: Option<(ThreadId, RunId)>,
    /// The last started thread and run.
    started: Option<(ThreadId, RunId)>,
    /// Advice after the violations.
    hint: Option<String>,
    is_on_stderr: bool,
}

impl Inspection {
    pub(crate) fn new(format: &Format, framing: Framing, max_frame: usize) -> Self {
        let strict = format.strict_options.iter().copied();
        let options = Options::parse(strict, format.options).expect("the options are the format's own");
        let options = SourceOptions { options, max_frame, ..SourceOptions::default() };
        Self {
            source: Source::new(format, framing, &options).expect("the format has a reader"),
            checker: format.ordered.then(Checker::new),
            framing,
            unit: if framing == Framing::Lines { "line" } else { "frame" },
            events: Vec::new(),
            seen: 0,
            violations: 0,
            has_content: false,
            names: format.checked_names,
            has_carriage_return: false,
            start: Vec::new(),
            is_start_whole: true,
            requested: None,
            started: None,
            hint: None,
            is_on_stderr: false,
        }
    }

    /// Sets the thread and run that the stream should belong to.
    pub(crate) fn expect_run(&mut self, thread: ThreadId, run: RunId) {
        self.requested = Some((thread, run));
    }

    /// Counts and prints a violation.
    pub(crate) fn report(&mut self, position: impl Display, rule: &str, message: impl Display) {
        self.violations += 1;
        if self.violations <= MAX_PRINTED {
            let renamed = |message: String, (name, own): &(&str, &str)| message.replace(name, own);
            let message = self.names.iter().fold(message.to_string(), renamed);
            if self.is_on_stderr {
                eprintln!("{position}: {rule}: {message}");
            } else {
                print::line_or_exit(format_args!("{position}: {rule}: {message}"), Class::Violations as u8);
            }
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.framing == Framing::Sse && !self.has_carriage_return && bytes.contains(&b'\r') {
            self.has_carriage_return = true;
            let message = "expected lines that end with LF, found a carriage return: the official client finds no frame";
            self.report("stream", "line-ends", message);
        }
        let kept = bytes.len().min(START_BYTES - self.start.len());
        self.start.extend_from_slice(&bytes[..kept]);
        self.is_start_whole &= kept == bytes.len();
        self.source.push(bytes);
        self.read_frames();
    }

    pub(crate) fn end(&mut self) {
        self.source.finish();
        self.read_frames();
        self.source.end(&StreamEnd::Closed, &mut self.events);
        self.check_events("end");
        if let Some(violation) = self.checker.as_mut().and_then(Checker::end) {
            let message = format!("expected {}, found {}", violation.expected, violation.found);
            self.report("end", &rule_label(violation.rule), message);
        }
    }

    /// Compares the stream with the other formats. If another one fits better, the result is an error if this one has
    /// understood nothing or not all of the stream, otherwise a hint after the violations.
    pub(crate) fn compare_formats(&mut self, name: &str, format: &Format) -> Result<()> {
        let Some(similar) = likelier_format(&self.start, self.is_start_whole, format) else { return Ok(()) };
        if !self.has_content || self.source.tally().unknown_events().next().is_some() {
            return Err(wrong_format_error(name, format, similar.name));
        }
        if self.violations > 0 {
            self.hint = Some(looks_like(similar.name));
        }
        Ok(())
    }

    fn read_frames(&mut self) {
        loop {
            let (frames, reader) = self.source.parts();
            let (index, offset, result) = match frames.next_frame() {
                None => return,
                Some(Err(error)) => (error.index, error.offset, Err(error)),
                Some(Ok(frame)) => (frame.index, frame.offset, reader.read_frame(&frame, &mut self.events)),
            };
            let position = format!("{} {} (byte {offset})", self.unit, index + 1);
            if let Err(error) = result {
                let rule = match error.problem {
                    InputProblem::Event(_) | InputProblem::Incomplete(_) => "malformed",
                    _ => "frame",
                };
                self.report(&position, rule, error.problem);
            }
            self.check_events(&position);
        }
    }

    /// Checks the events of the last frame.
    fn check_events(&mut self, position: &str) {
        for event in std::mem::take(&mut self.events) {
            self.seen += 1;
            self.has_content |=
                !event.is_terminal() && !matches!(event.body, Body::RunStarted(_) | Body::Raw { .. });
            if let (Some(_), Body::RunStarted(started)) = (&self.requested, &event.body) {
                self.started = Some((started.thread.clone(), started.run.clone()));
            }
            let Some(violation) = self.checker.as_mut().and_then(|checker| checker.check(&event)) else {
                continue;
            };
            let message = format!("expected {}, found {}", violation.expected, violation.found);
            self.report(position, &rule_label(violation.rule), message);
        }
    }

    /// The number of violations so far.
    pub(crate) fn violations(&self) -> u64 {
        self.violations
    }

    /// Prints violations to stderr: stdout has the output of the run.
    pub(crate) fn on_stderr(mut self) -> Self {
        self.is_on_stderr = true;
        self
    }

    /// Prints the tolerated deviations and the summary; returns the exit code.
    pub(crate) fn conclude(self) -> ExitCode {
        print_notes(self.source.tally());
        // The last run of a stream should be the requested one. The official client accepts any ids, and servers that
        // play a recording send others; but a client that looks for its run by id does not find it.
        if let (Some(requested), Some(started)) = (&self.requested, &self.started)
            && requested != started
        {
            let (thread, run) = started;
            eprintln!("note: the response is thread `{thread}` and run `{run}`, not those of the request");
        }
        if self.source.replaced_bytes() > 0 {
            eprintln!("note: {} bytes are not UTF-8", self.source.replaced_bytes());
        }
        if self.violations > MAX_PRINTED {
            print::line_or_exit(
                format_args!("… and {} more", self.violations - MAX_PRINTED),
                Class::Violations as u8,
            );
        }
        match self.violations {
            0 => {
                eprintln!("ok: {}", counted(self.seen, "event"));
                ExitCode::SUCCESS
            }
            violations => {
                let violations = counted(violations, "violation");
                eprintln!("{violations} in {}", counted(self.seen, "event"));
                if let Some(hint) = self.hint {
                    eprintln!("hint: {hint}");
                }
                ExitCode::from(Class::Violations as u8)
            }
        }
    }
}

fn rule_label(rule: agentwire_core::order::Rule) -> String {
    if rule.enforced_by_client() { rule.name().to_owned() } else { format!("{} (spec)", rule.name()) }
}

fn print_notes(tally: &Tally) {
    for (category, name, count) in tally.iter() {
        let times = counted(count.times, "time");
        eprintln!("note: {category} `{name}`, {times}, first in frame {}", count.first_frame);
    }
}

/// A number with its noun, in singular or plural.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The error for a server that cannot be checked.
pub(crate) fn server_error(message: impl Into<String>) -> Error {
    Error::new(Class::Server, message)
}
