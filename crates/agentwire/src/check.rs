//! `agentwire check`: names each breach of a stream, from a file, a pipe or a running server.

use std::{fmt::Display, path::Path, process::ExitCode};

use agentwire_core::{
    Tally,
    event::{Body, Event, RunId, StreamEnd, ThreadId},
    format::{Format, Options},
    framing::Framing,
    order::Checker,
    source::{InputProblem, Source, SourceOptions},
};

use crate::{
    cli::Check,
    error::{Class, Error, Result},
    formats,
    input::{CHUNK, Input},
    print, remote,
};

/// Breaches beyond this are counted, not printed.
const SHOWN: u64 = 100;

pub(crate) fn run(arguments: &Check) -> Result<ExitCode> {
    let format = formats::reader(&arguments.format)?;
    let inspection = if is_address(&arguments.input) {
        remote::check(arguments, format)?
    } else {
        let mut input = Input::open(Path::new(&arguments.input))?;
        let framing = match input.framing(format.reads) {
            Ok(framing) => framing,
            // Nothing is a stream that lacks all that it must have, and that is for the rules to say.
            Err(foreign) if foreign.is_empty() => format.reads.first().copied().unwrap_or(Framing::Lines),
            Err(foreign) => {
                let message = format!("`{}` is not valid {}: {foreign}", input.name, format.name);
                return Err(Error::new(Class::Input, message));
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
        inspection
    };
    Ok(inspection.conclude())
}

/// Whether the input is a server. Schemes are the same in capitals.
fn is_address(input: &str) -> bool {
    let scheme = input.split_once("://").map_or("", |(scheme, _)| scheme);
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// A stream under inspection.
pub(crate) struct Inspection {
    source: Source,
    checker: Option<Checker>,
    framing: Framing,
    unit: &'static str,
    events: Vec<Event>,
    seen: u64,
    breaches: u64,
    carriage_return: bool,
    /// The thread and run that the server was asked for, and those that it last started.
    asked: Option<(ThreadId, RunId)>,
    started: Option<(ThreadId, RunId)>,
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
            breaches: 0,
            carriage_return: false,
            asked: None,
            started: None,
        }
    }

    /// What comes is the answer to a request for this run.
    pub(crate) fn ask(&mut self, thread: ThreadId, run: RunId) {
        self.asked = Some((thread, run));
    }

    /// Prints a breach.
    pub(crate) fn breach(&mut self, place: impl Display, rule: &str, what: impl Display) {
        self.breaches += 1;
        if self.breaches <= SHOWN {
            print::line_or(format_args!("{place}: {rule}: {what}"), Class::Breaches as i32);
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.framing == Framing::Sse && !self.carriage_return && bytes.contains(&b'\r') {
            self.carriage_return = true;
            let what = "expected lines that end with LF, found a carriage return: the official client finds no frame";
            self.breach("stream", "line-ends", what);
        }
        self.source.push(bytes);
        self.read_frames();
    }

    pub(crate) fn end(&mut self) {
        self.source.finish();
        self.read_frames();
        self.source.end(&StreamEnd::Closed, &mut self.events);
        self.judge("end");
        if let Some(breach) = self.checker.as_mut().and_then(Checker::end) {
            let what = format!("expected {}, found {}", breach.expected, breach.found);
            self.breach("end", &rule_label(breach.rule), what);
        }
    }

    fn read_frames(&mut self) {
        loop {
            let (frames, reader) = self.source.parts();
            let (index, offset, result) = match frames.next_frame() {
                None => return,
                Some(Err(error)) => (error.index, error.offset, Err(error)),
                Some(Ok(frame)) => (frame.index, frame.offset, reader.read_frame(&frame, &mut self.events)),
            };
            let place = format!("{} {} (byte {offset})", self.unit, index + 1);
            if let Err(error) = result {
                let rule = match error.problem {
                    InputProblem::Event(_) | InputProblem::Incomplete(_) => "malformed",
                    _ => "frame",
                };
                self.breach(&place, rule, error.problem);
            }
            self.judge(&place);
        }
    }

    /// Checks the events that the last frame gave.
    fn judge(&mut self, place: &str) {
        for event in std::mem::take(&mut self.events) {
            self.seen += 1;
            if let (Some(_), Body::RunStarted(started)) = (&self.asked, &event.body) {
                self.started = Some((started.thread.clone(), started.run.clone()));
            }
            let Some(breach) = self.checker.as_mut().and_then(|checker| checker.check(&event)) else {
                continue;
            };
            let what = format!("expected {}, found {}", breach.expected, breach.found);
            self.breach(place, &rule_label(breach.rule), what);
        }
    }

    /// Prints what was tolerated and the verdict.
    pub(crate) fn conclude(self) -> ExitCode {
        print_notes(self.source.tally());
        // The last run of a stream is the one that was asked for. The official client takes any ids, and so do
        // servers that play a recording; but a client that looks for its run will not find it.
        if let (Some(asked), Some(started)) = (&self.asked, &self.started)
            && asked != started
        {
            let (thread, run) = started;
            eprintln!("note: the answer is thread `{thread}` and run `{run}`, not those of the request");
        }
        if self.source.replaced_bytes() > 0 {
            eprintln!("note: {} bytes are not UTF-8", self.source.replaced_bytes());
        }
        if self.breaches > SHOWN {
            print::line_or(format_args!("… and {} more", self.breaches - SHOWN), Class::Breaches as i32);
        }
        match self.breaches {
            0 => {
                eprintln!("ok: {}", counted(self.seen, "event"));
                ExitCode::SUCCESS
            }
            breaches => {
                let breaches = counted(breaches, "breach");
                eprintln!("{breaches} in {}", counted(self.seen, "event"));
                ExitCode::from(Class::Breaches as u8)
            }
        }
    }
}

fn rule_label(rule: agentwire_core::order::Rule) -> String {
    if rule.enforced_by_client() { rule.name().to_owned() } else { format!("{} (spec)", rule.name()) }
}

fn print_notes(tally: &Tally) {
    for (what, name, count) in tally.iter() {
        let times = counted(count.times, "time");
        eprintln!("note: {what} `{name}`, {times}, first in frame {}", count.first_frame);
    }
}

/// A number of things in words.
fn counted(number: u64, what: &str) -> String {
    match (number, what) {
        (1, _) => format!("1 {what}"),
        (_, "breach") => format!("{number} breaches"),
        _ => format!("{number} {what}s"),
    }
}

/// The error for a server that cannot be checked.
pub(crate) fn server_error(message: impl Into<String>) -> Error {
    Error::new(Class::Server, message)
}
