//! `agentwire convert`: translates a stream between formats and reports losses and repairs.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use agentwire_core::{
    codes,
    convert::{Converter, Report},
    event::StreamEnd,
    format::{Format, Setup, ag_ui},
    framing::Framing,
    source::{GuardedSource, InputProblem, SourceOptions},
};

use crate::{
    cli::{Convert, ReportStyle},
    error::{Class, Error, ExitCode, Result},
    formats,
    input::{CHUNK, Input},
    progress,
};

pub(crate) fn run(arguments: &Convert) -> Result<ExitCode> {
    let mut from = arguments.from.as_deref().map(formats::reader).transpose()?;
    let (to, profile) = formats::writer(&arguments.to)?;
    let mut input = Input::open(&arguments.input)?;
    if is_same_file(&arguments.input, &arguments.output) {
        let message = format!("`{}` is the input, expected another file", arguments.output.display());
        return Err(Error::new(Class::Usage, message));
    }
    if from.is_none() {
        from = input.format();
        if let Some(found) = from {
            eprintln!("note: `{}` is read as {} (detected; --from names the format)", input.name, found.name);
        }
    }
    let is_detected = from.is_some();
    // Any reader can end the run of an input that is in no format.
    let from = from.unwrap_or(&ag_ui::FORMAT);
    let mut pairs = arguments.options.clone();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    add_time(&mut pairs, to, i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
    let (from_options, to_options) = formats::options(&pairs, from, to)?;
    let framing = match profile.framing {
        Framing::Prefixed if arguments.lines => {
            let error = Error::new(Class::Usage, format!("`{}` is binary, --lines writes JSON", to.name));
            return Err(error.hint("convert to `ag-ui` to see the events as lines"));
        }
        Framing::Sse if arguments.lines => Some(Framing::Lines),
        _ => None,
    };
    let source = SourceOptions {
        thread: arguments.thread.as_str().into(),
        run: arguments.run.as_str().into(),
        options: from_options.for_profile(from, profile),
        max_frame: arguments.max_frame,
        lenient: arguments.lenient,
    };
    let (input_framing, foreign) = match input.framing(from.reads) {
        Ok(framing) => (framing, None),
        Err(foreign) => {
            let foreign = Some(foreign).filter(|foreign| !(foreign.is_empty() && from.can_be_empty));
            (from.reads.first().copied().unwrap_or(Framing::Lines), foreign)
        }
    };
    let setup = Setup {
        thread: arguments.thread.as_str().into(),
        run: arguments.run.as_str().into(),
        options: &to_options,
    };
    let source = GuardedSource::new(from, input_framing, &source).expect("the format has a reader");
    let mut converter =
        Converter::new(source, to, profile, framing, &setup).expect("the format has a writer");
    let mut output = Output::open(&arguments.output)?;

    let mut chunk = vec![0; CHUNK];
    let mut unreadable = None;
    let mut wrong_format = None;
    let mut result = match foreign {
        Some(foreign) => Err(converter.refuse(foreign)),
        None => Ok(()),
    };
    loop {
        let mut is_done = result.is_err();
        if !is_done {
            result = match input.read(&mut chunk) {
                Ok(0) => {
                    is_done = true;
                    wrong_format = input.similar_format(from).filter(|_| !has_content(&converter.report()));
                    match wrong_format {
                        None => converter.end(&StreamEnd::Closed),
                        Some(similar) => {
                            let message =
                                format!("no event is valid {}, this looks like `{similar}`", from.name);
                            converter.end(&StreamEnd::Failed {
                                code: codes::BAD_INPUT.into(),
                                message: message.into(),
                            })
                        }
                    }
                }
                Ok(read) => converter.push(&chunk[..read]),
                // The output is a complete stream even if the input is not.
                Err(error) => {
                    is_done = true;
                    let (code, message) = (codes::INPUT_UNREADABLE.into(), error.message.as_str().into());
                    unreadable = Some(error);
                    converter.end(&StreamEnd::Failed { code, message })
                }
            };
        }
        if !converter.output().drain(|bytes| output.write(bytes)).map_err(|error| output.failed(&error))? {
            return Ok(ExitCode::SUCCESS);
        }
        if is_done || result.is_err() {
            break;
        }
    }
    progress::finish();
    match arguments.report {
        Some(style) => print_report(&converter.report(), style),
        // All events of another format are unknown; the error names it.
        None if wrong_format.is_some() => {}
        None => print_unknown_events(&converter.report()),
    }
    if let Some(error) = unreadable {
        return Err(error);
    }
    if wrong_format.is_none() && result.is_ok() && converter.report().unknown_events().next().is_some() {
        // Some events are in both formats, as in AG-UI and HAI; the others were lost.
        wrong_format = input.similar_format(from);
    }
    if let Some(similar) = wrong_format {
        return Err(wrong_format_error(&input.name, from, similar));
    }
    let Err(failed) = result else { return Ok(ExitCode::SUCCESS) };
    let name = &input.name;
    let error = Error::new(
        Class::Input,
        if is_detected {
            format!("`{name}` is not valid {}: {failed}", from.name)
        } else {
            format!("`{name}` is in no format that agentwire reads: {failed}")
        },
    );
    let report = converter.report();
    let is_foreign = matches!(failed.problem, InputProblem::Foreign(_));
    Err(match input.similar_format(from).filter(|_| !has_content(&report)) {
        Some(similar) => error.hint(looks_like(similar)),
        None if is_foreign => error.hint("the output is a run that ends with RUN_ERROR"),
        None if arguments.lenient => error,
        None if event_kinds(&report).any(|kind| kind == "RUN_ERROR") => {
            error.hint("the output ends with RUN_ERROR; --lenient skips malformed frames and counts them")
        }
        None => error.hint("the run had ended before; --lenient skips malformed frames and counts them"),
    })
}

/// For formats that require a time: adds the time of events whose source has none, unless it was given.
pub(crate) fn add_time(pairs: &mut Vec<String>, to: &Format, now: i64) {
    if let Some(option) = to.time_option
        && !pairs.iter().any(|pair| {
            let name = pair.split_once('=').map(|(name, _)| name.strip_prefix("to.").unwrap_or(name));
            name == Some(option)
        })
    {
        pairs.push(format!("to.{option}={now}"));
    }
}

/// The kinds of the events that were converted.
fn event_kinds(report: &Report) -> impl Iterator<Item = &'static str> {
    let losses = report.approximated.iter().chain(&report.dropped).map(|loss| loss.kind);
    report.exact.iter().map(|(kind, _)| *kind).chain(losses)
}

/// True if the reader understood any frame. Readers start and end a run whatever they read, and pass on unknown frames.
fn has_content(report: &Report) -> bool {
    event_kinds(report).any(|kind| !["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "RAW"].contains(&kind))
}

/// The hint for an input that looks like a stream of another format.
pub(crate) fn looks_like(similar: &str) -> String {
    format!("this looks like `{similar}`: try `--from {similar}`")
}

/// The error for an input that is a stream of another format.
pub(crate) fn wrong_format_error(input: &str, from: &Format, similar: &str) -> Error {
    let message = format!("`{input}` is no {} stream: this looks like `{similar}`", from.name);
    Error::new(Class::Input, message).hint(format!("try `--from {similar}`"))
}

/// Whether input and output are the same file, also under different names: writing would destroy the input.
fn is_same_file(input: &Path, output: &Path) -> bool {
    let input = if input == Path::new("-") { Path::new("/dev/stdin") } else { input };
    if output == Path::new("-") {
        return false;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        // Devices and pipes have no contents to destroy.
        let identity = |path: &Path| {
            let metadata = path.metadata().ok().filter(|metadata| metadata.is_file())?;
            Some((metadata.dev(), metadata.ino()))
        };
        identity(output).is_some_and(|output| identity(input) == Some(output))
    }
    #[cfg(not(unix))]
    {
        output.canonicalize().is_ok_and(|output| input.canonicalize().is_ok_and(|input| input == output))
    }
}

/// The output file or stdout.
struct Output {
    sink: Box<dyn Write>,
    name: String,
}

impl Output {
    fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self { sink: Box::new(io::stdout()), name: "stdout".into() });
        }
        let name = path.display().to_string();
        match File::create(path) {
            Ok(file) => Ok(Self { sink: Box::new(file), name }),
            Err(error) => Err(Error::new(Class::Io, format!("`{name}` could not be written: {error}"))),
        }
    }

    /// Writes and flushes; returns `false` on a closed pipe, which is not an error.
    fn write(&mut self, bytes: &[u8]) -> io::Result<bool> {
        match progress::suspend(|| self.sink.write_all(bytes).and_then(|()| self.sink.flush())) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::new(Class::Io, format!("`{}` could not be written: {error}", self.name))
    }
}

/// One line per kind of event that was not understood; the report lists them too.
fn print_unknown_events(report: &Report) {
    for (kind, name, count) in report.unknown_events() {
        let times = if count.times == 1 { "once".to_owned() } else { format!("{} times", count.times) };
        eprintln!("warning: {kind} `{}`, {times}, first in frame {}", name.escape_debug(), count.first_frame);
    }
}

fn print_report(report: &Report, style: ReportStyle) {
    match style {
        ReportStyle::Json => eprintln!("{}", report_json(report)),
        ReportStyle::Text => eprint!("{}", report_text(report)),
    }
}

pub(crate) fn report_text(report: &Report) -> String {
    let mut text = format!("{} frames read", report.frames);
    if report.skipped > 0 {
        text.push_str(&format!(", {} malformed ones skipped", report.skipped));
    }
    text.push('\n');
    let mut section = |title: &str, rows: Vec<(String, u64, String)>| {
        if rows.is_empty() {
            return;
        }
        text.push_str(title);
        text.push('\n');
        for (name, times, reason) in rows {
            let reason = if reason.is_empty() { String::new() } else { format!("  {reason}") };
            text.push_str(&format!("  {times:>8}  {name}{reason}\n"));
        }
    };
    let exact = report.exact.iter().map(|(kind, times)| ((*kind).to_owned(), *times, String::new()));
    section("exact", exact.collect());
    let losses = |losses: &[agentwire_core::convert::Loss]| {
        losses.iter().map(|loss| (loss.kind.to_owned(), loss.times, loss.why.to_owned())).collect()
    };
    section("approximated", losses(&report.approximated));
    section("dropped", losses(&report.dropped));
    let repaired =
        report.repaired.iter().map(|(rule, times)| (rule.name().to_owned(), *times, rule.about().to_owned()));
    section("repaired", repaired.collect());
    let mut tolerated: Vec<_> = report
        .tolerated
        .iter()
        .map(|(category, name, count)| {
            (format!("{category} `{name}`"), count.times, format!("first in frame {}", count.first_frame))
        })
        .collect();
    if report.replaced_bytes > 0 {
        tolerated.push((
            "bytes that are not UTF-8".into(),
            report.replaced_bytes,
            "replaced by U+FFFD".into(),
        ));
    }
    section("tolerated", tolerated);
    text
}

pub(crate) fn report_json(report: &Report) -> serde_json::Value {
    let losses = |losses: &[agentwire_core::convert::Loss]| -> Vec<_> {
        let row = |loss: &agentwire_core::convert::Loss| serde_json::json!({"event": loss.kind, "times": loss.times, "why": loss.why});
        losses.iter().map(row).collect()
    };
    let exact: Vec<_> =
        report.exact.iter().map(|(kind, times)| serde_json::json!({"event": kind, "times": times})).collect();
    let repaired: Vec<_> = report
        .repaired
        .iter()
        .map(|(rule, times)| serde_json::json!({"rule": rule.name(), "times": times, "about": rule.about()}))
        .collect();
    let tolerated: Vec<_> = report
        .tolerated
        .iter()
        .map(|(category, name, count)| {
            let (times, first) = (count.times, count.first_frame);
            serde_json::json!({"what": category, "name": name, "times": times, "firstFrame": first})
        })
        .collect();
    serde_json::json!({
        "frames": report.frames,
        "skipped": report.skipped,
        "exact": exact,
        "approximated": losses(&report.approximated),
        "dropped": losses(&report.dropped),
        "repaired": repaired,
        "tolerated": tolerated,
        "replacedBytes": report.replaced_bytes,
    })
}
