//! `agentwire check`: names each breach of a stream, from a file, a pipe or a running server.

use std::{fmt::Display, path::Path, process::ExitCode};

use agentwire_core::{
    Tally,
    event::Event,
    format::{Format, Options, Reader, Setup, StreamEnd},
    framing::{Decoder, Framing},
    order::Checker,
};

use crate::{
    cli::Check,
    error::{Class, Error, Result},
    formats,
    input::{CHUNK, Input},
    remote,
};

/// Breaches beyond this are counted, not printed.
const SHOWN: u64 = 100;

pub(crate) fn run(arguments: &Check) -> Result<ExitCode> {
    let format = formats::reader(&arguments.format)?;
    let inspection = if arguments.input.starts_with("http://") || arguments.input.starts_with("https://") {
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

/// A stream under inspection.
pub(crate) struct Inspection {
    decoder: Decoder,
    reader: Box<dyn Reader>,
    checker: Option<Checker>,
    framing: Framing,
    unit: &'static str,
    events: Vec<Event>,
    seen: u64,
    breaches: u64,
    carriage_return: bool,
}

impl Inspection {
    pub(crate) fn new(format: &Format, framing: Framing, max_frame: usize) -> Self {
        // What the official client refuses is refused here too.
        let strict = format.options.iter().any(|option| option.name == "old_shapes");
        let pairs = strict.then_some("old_shapes=refuse");
        let options = Options::parse(pairs, format.options).expect("the option is the format's own");
        let setup = Setup { thread: "thread".into(), run: "run".into(), options: &options };
        Self {
            decoder: Decoder::new(framing, max_frame),
            reader: format.reader.expect("the format has a reader")(&setup),
            checker: format.ordered.then(Checker::new),
            framing,
            unit: if framing == Framing::Lines { "line" } else { "frame" },
            events: Vec::new(),
            seen: 0,
            breaches: 0,
            carriage_return: false,
        }
    }

    /// Prints a breach.
    pub(crate) fn breach(&mut self, place: impl Display, rule: &str, what: impl Display) {
        self.breaches += 1;
        if self.breaches <= SHOWN {
            println!("{place}: {rule}: {what}");
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.framing == Framing::Sse && !self.carriage_return && bytes.contains(&b'\r') {
            self.carriage_return = true;
            let what = "expected lines that end with LF, found a carriage return: the official client finds no frame";
            self.breach("stream", "line-ends", what);
        }
        self.decoder.push(bytes);
        self.drain();
    }

    pub(crate) fn end(&mut self) {
        self.decoder.finish();
        self.drain();
        self.reader.end(&StreamEnd::Closed, &mut self.events);
        self.judge("end");
        if let Some(breach) = self.checker.as_mut().and_then(Checker::end) {
            let what = format!("expected {}, found {}", breach.expected, breach.found);
            self.breach("end", &rule_label(breach.rule), what);
        }
    }

    fn drain(&mut self) {
        loop {
            let (place, failure) = match self.decoder.next_frame() {
                None => return,
                Some(Err(error)) => {
                    let place = format!("{} {} (byte {})", self.unit, error.index + 1, error.offset);
                    (place, Some(("frame", error.problem.to_string())))
                }
                Some(Ok(frame)) => {
                    let place = format!("{} {} (byte {})", self.unit, frame.index + 1, frame.offset);
                    let read = self.reader.read(&frame, &mut self.events);
                    (place, read.err().map(|error| ("malformed", error.to_string())))
                }
            };
            if let Some((rule, what)) = failure {
                self.breach(&place, rule, what);
            }
            self.judge(&place);
        }
    }

    /// Checks the events that the last frame gave.
    fn judge(&mut self, place: &str) {
        for event in std::mem::take(&mut self.events) {
            self.seen += 1;
            let Some(breach) = self.checker.as_mut().and_then(|checker| checker.check(&event)) else {
                continue;
            };
            let what = format!("expected {}, found {}", breach.expected, breach.found);
            self.breach(place, &rule_label(breach.rule), what);
        }
    }

    /// Prints what was tolerated and the verdict.
    pub(crate) fn conclude(self) -> ExitCode {
        print_notes(self.reader.tally());
        if self.decoder.replaced() > 0 {
            eprintln!("note: {} bytes are not UTF-8", self.decoder.replaced());
        }
        if self.breaches > SHOWN {
            println!("… and {} more", self.breaches - SHOWN);
        }
        match self.breaches {
            0 => {
                eprintln!("ok: {} events", self.seen);
                ExitCode::SUCCESS
            }
            breaches => {
                eprintln!("{breaches} breaches in {} events", self.seen);
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
        eprintln!("note: {what} `{name}`, {} times, first in frame {}", count.times, count.first_frame);
    }
}

/// The error for a server that cannot be checked.
pub(crate) fn server_error(message: impl Into<String>) -> Error {
    Error::new(Class::Server, message)
}
