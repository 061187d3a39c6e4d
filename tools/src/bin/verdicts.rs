//! Checks and converts AG-UI streams. Used by `e2e/ag-ui`, which compares the results with the official client.
//!
//! Each input line is `{"name", "stream"}`, where `stream` is the text of an SSE body. Each output line is `{"name",
//! "violations": [{"rule", "client"}], "malformed", "outputs": {"ag-ui@1", …}}`: the findings of `agentwire check`,
//! and the output of `agentwire convert` in each profile, in hex where it is binary. One process handles all lines,
//! because a process per stream would spend nine tenths of its time on its start.

use std::io::{self, BufRead, Write};

use agentwire_core::{
    convert::Converter,
    event::StreamEnd,
    format::{Format, Options, Setup},
    framing::{DEFAULT_MAX_FRAME, Decoder, Framing},
    order::{Checker, Violation},
    source::{GuardedSource, SourceOptions},
};
use serde_json::{Map, Value, json};

/// The profiles that the streams are converted to.
const TARGETS: &[&str] = &["ag-ui@1", "ag-ui@chunks", "ag-ui@0", "ag-ui@0.0.5x", "ag-ui-proto@1"];

fn main() -> io::Result<()> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line?)?;
        let stream = line["stream"].as_str().unwrap_or_default();
        let (violations, malformed) = check(stream.as_bytes());
        let outputs: Map<_, _> =
            TARGETS.iter().map(|target| ((*target).to_owned(), convert(stream.as_bytes(), target))).collect();
        let violations: Vec<_> = violations
            .iter()
            .map(|violation| json!({"rule": violation.rule.name(), "client": violation.rule.enforced_by_client()}))
            .collect();
        let response = json!({
            "name": line["name"], "violations": violations, "malformed": malformed, "outputs": outputs,
        });
        writeln!(stdout, "{response}")?;
    }
    stdout.flush()
}

/// The violations and the first malformed frame, as `agentwire check` finds them.
fn check(stream: &[u8]) -> (Vec<Violation>, Option<String>) {
    let format = Format::find("ag-ui").expect("the format is built in");
    let options = Options::parse(["old_shapes=refuse"], format.options).expect("the option is known");
    let setup = Setup { thread: "thread".into(), run: "run".into(), options: &options };
    let mut reader = format.reader.expect("the format has a reader")(&setup);
    let mut decoder = Decoder::new(Framing::Sse, DEFAULT_MAX_FRAME);
    let mut checker = Checker::new();
    let (mut violations, mut malformed, mut events) = (Vec::new(), None, Vec::new());
    decoder.push(stream);
    decoder.finish();
    while let Some(frame) = decoder.next_frame() {
        let problem = match frame {
            Ok(frame) => reader
                .read(&frame, &mut events)
                .err()
                .map(|error| format!("frame {}: {error}", frame.index + 1)),
            Err(error) => Some(error.to_string()),
        };
        malformed = malformed.or(problem);
        violations.extend(events.drain(..).filter_map(|event| checker.check(&event)));
    }
    reader.end(&StreamEnd::Closed, &mut events);
    violations.extend(events.drain(..).filter_map(|event| checker.check(&event)));
    violations.extend(checker.end());
    (violations, malformed)
}

/// The stream in another profile: text, or hex where it is binary.
fn convert(stream: &[u8], target: &str) -> Value {
    let from = Format::find("ag-ui").expect("the format is built in");
    let (name, profile) = target.split_once('@').expect("targets name their profile");
    let to = Format::find(name).expect("the format is built in");
    let profile = to.profile(profile).expect("the profile is built in");
    let options = Options::default();
    let setup = Setup { thread: "thread".into(), run: "run".into(), options: &options };
    let source =
        GuardedSource::new(from, Framing::Sse, &SourceOptions::default()).expect("the format has a reader");
    let mut converter = Converter::new(source, to, profile, None, &setup).expect("the format has a writer");
    // A malformed frame ends the output with RUN_ERROR, so the error itself is not needed.
    let _ = converter.push(stream);
    let _ = converter.end(&StreamEnd::Closed);
    let bytes = converter.output().take();
    match profile.framing {
        Framing::Prefixed => Value::String(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        _ => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
    }
}
