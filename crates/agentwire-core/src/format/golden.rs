//! Golden test of every format: fixtures in, expected events out.
//!
//! `fixtures/x.sse` (or `.jsonl`, `.json`, `.txt`, `.bin`) holds the recorded bytes, `fixtures/x.events.jsonl` the
//! expected events, one AG-UI 1.0 event per line. `UPDATE=1 cargo test` rewrites the latter; the difference is
//! reviewed like code. Each fixture must also give the same events for any split of its bytes, pass the checker, and
//! survive a round trip through AG-UI's own encodings.

use std::{fmt::Write as _, fs, path::Path};

use super::{Format, Options, Setup, ag_ui};
use crate::{
    event::{Event, StreamEnd},
    framing::{Frames, Framing, detect},
    order::Checker,
    source::{GuardedSource, SourceOptions},
};

/// The events of `bytes`, and the error that ended them, if one did.
pub(crate) fn read(
    format: &Format,
    bytes: &[u8],
    cut: usize,
    pairs: &[&str],
) -> (Vec<Event>, Option<String>) {
    let framing = detect(bytes, format.reads).expect("the framing of a fixture can be detected");
    read_framed(format, framing, bytes, cut, pairs)
}

/// As [`read`], in a framing that is known.
pub(crate) fn read_framed(
    format: &Format,
    framing: Framing,
    bytes: &[u8],
    cut: usize,
    pairs: &[&str],
) -> (Vec<Event>, Option<String>) {
    let options = Options::parse(pairs.iter().copied(), format.options).expect("options of a test are known");
    let options = SourceOptions { thread: "t".into(), run: "r".into(), options, ..SourceOptions::default() };
    let mut source = GuardedSource::new(format, framing, &options).expect("the format has a reader");
    let mut events = Vec::new();
    let mut sink = |event| events.push(event);
    let mut failure = None;
    for chunk in bytes.chunks(cut.max(1)) {
        failure = failure.or(source.push(chunk, &mut sink).err());
    }
    failure = failure.or(source.end(&StreamEnd::Closed, &mut sink).err());
    (events, failure.map(|error| error.to_string()))
}

/// The events as bytes of `format`.
pub(crate) fn write(
    format: &Format,
    profile: &str,
    framing: Option<Framing>,
    events: &[Event],
    pairs: &[&str],
) -> Vec<u8> {
    let options = Options::parse(pairs.iter().copied(), format.options).expect("options of a test are known");
    let profile = format.profile(profile).expect("the profile of a test is known");
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    let mut writer = format.writer.expect("the format has a writer")(profile, &setup);
    let mut out = Frames::new(framing.unwrap_or(profile.framing));
    for event in events {
        writer.write(event, &mut out);
        out.finish_event(None);
    }
    writer.end(&mut out);
    out.take().to_vec()
}

/// The events as AG-UI JSON lines.
pub(crate) fn lines(events: &[Event]) -> String {
    let bytes = write(&ag_ui::FORMAT, "1", Some(Framing::Lines), events, &[]);
    String::from_utf8(bytes).expect("JSON lines are UTF-8")
}

/// Checks every fixture in `folder`, which is relative to the crate.
///
/// Options of a fixture go into its name: `x.thinking=chains.jsonl`.
pub(crate) fn run(format: &Format, folder: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut names: Vec<_> = fs::read_dir(&folder)
        .expect("the folder of fixtures exists")
        .map(|entry| entry.expect("a folder can be read").file_name().into_string().expect("names are UTF-8"))
        .filter(|name| !name.ends_with(".md") && !name.contains(".events.jsonl"))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no fixtures in {}", folder.display());
    let mut problems = String::new();
    for name in &names {
        let path = folder.join(name);
        if path.is_dir() {
            continue;
        }
        let bytes = fs::read(&path).expect("a fixture can be read");
        let pairs: Vec<&str> = name.split('.').filter(|part| part.contains('=')).collect();
        let (events, failure) = read(format, &bytes, usize::MAX, &pairs);
        let mut text = lines(&events);
        if let Some(failure) = &failure {
            writeln!(text, "# {failure}").expect("writing to memory does not fail");
        }
        let stem = name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem);
        let wanted = folder.join(format!("{stem}.events.jsonl"));
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&wanted, &text).expect("the expectation can be written");
        }
        let wanted = fs::read_to_string(&wanted).unwrap_or_default();
        if text != wanted {
            let line = text.lines().zip(wanted.lines()).position(|(a, b)| a != b);
            let line = line.unwrap_or_else(|| text.lines().count().min(wanted.lines().count()));
            writeln!(
                problems,
                "{name}: line {} differs\n  expected {}\n  got      {}",
                line + 1,
                wanted.lines().nth(line).unwrap_or("(nothing)"),
                text.lines().nth(line).unwrap_or("(nothing)"),
            )
            .expect("writing to memory does not fail");
        }
        // One byte at a time is the hardest cut; for a large file a prime number of bytes must do.
        let cut = if bytes.len() > 200_000 { 997 } else { 1 };
        let again = read(format, &bytes, cut, &pairs);
        assert_eq!((&again.0, &again.1), (&events, &failure), "{name}: cutting the bytes changes the events");
        let mut checker = Checker::new();
        for event in &events {
            assert_eq!(checker.check(event), None, "{name}: the guard let out an invalid event");
        }
        assert_eq!(checker.end(), None, "{name}");
        survives_ag_ui(name, &events);
    }
    assert!(problems.is_empty(), "{problems}(UPDATE=1 rewrites the expectations)");
}

/// Canonical → AG-UI → canonical, in both encodings.
pub(crate) fn survives_ag_ui(name: &str, events: &[Event]) {
    let json = write(&ag_ui::FORMAT, "1", None, events, &[]);
    let (back, failure) = read_framed(&ag_ui::FORMAT, Framing::Sse, &json, usize::MAX, &[]);
    assert_eq!(failure, None, "{name}: our own SSE is refused");
    assert_eq!(lines(&back), lines(events), "{name}: SSE changes the events");
    let binary = write(&ag_ui::proto::FORMAT, "1", None, events, &[]);
    let (back, failure) = read_framed(&ag_ui::proto::FORMAT, Framing::Prefixed, &binary, usize::MAX, &[]);
    assert_eq!(failure, None, "{name}: our own protobuf is refused");
    let kinds = |events: &[Event]| events.iter().map(Event::kind).collect::<Vec<_>>();
    assert_eq!(kinds(&back), kinds(events), "{name}: protobuf changes the events");
}
