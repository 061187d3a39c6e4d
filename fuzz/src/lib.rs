//! Properties that must hold for any bytes: one function per fuzz target.
//!
//! `fuzz_targets/` passes these to libFuzzer (`scripts/fuzz`); `tools/src/bin/fuzz_smoke.rs` includes this file and runs
//! the same functions briefly without coverage feedback (`scripts/fuzz-smoke`). A target panics when a property does not
//! hold.
//!
//! The first two bytes of an input select the target's parameters (framing, leniency, split positions, maximum
//! frame size); the rest is its data.

use agentwire_core::{
    Tally,
    event::{Body, Event, StreamEnd},
    fold::{Fold, Join, compact},
    format::{FORMATS, Fidelity, Format, Options, Setup, adk, ag_ui, ai_sdk, hai, langgraph, openai},
    framing::{Decoder, Frames, Framing, Payload},
    json::Json,
    order::Checker,
    patch::{Limits, Patch, apply, diff},
    source::{GuardedSource, SourceOptions, detect_format},
};
use serde_json::Value;

/// A fuzz target; panics if its property is violated.
pub type Target = fn(&[u8]);

/// Every target that is not a format, by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("sse", |data| framing(Framing::Sse, data)),
    ("lines", |data| framing(Framing::Lines, data)),
    ("coded", |data| framing(Framing::Coded, data)),
    ("array", |data| framing(Framing::Array, data)),
    ("prefixed", |data| framing(Framing::Prefixed, data)),
    ("ag_ui_input", ag_ui_input),
    ("ai_sdk_input", ai_sdk_input),
    ("hai_input", hai_input),
    ("requests", requests),
    ("session", session),
    ("json", json),
    ("detect", detect),
    ("patch", patch),
];

/// A decoder returns the same frames for any split of the bytes, and none above its size limit.
pub fn framing(framing: Framing, data: &[u8]) {
    let [bound, cut, bytes @ ..] = data else { return };
    let max_frame = 1 << (4 + bound % 12);
    let whole = frames(framing, max_frame, bytes, usize::MAX);
    assert_eq!(whole, frames(framing, max_frame, bytes, 1 + usize::from(*cut)), "the cut changes the frames");
    assert_eq!(whole, frames(framing, max_frame, bytes, 1), "single bytes change the frames");
}

fn frames(framing: Framing, max_frame: usize, bytes: &[u8], cut: usize) -> Vec<String> {
    let mut decoder = Decoder::new(framing, max_frame);
    let mut found = Vec::new();
    let mut drain = |decoder: &mut Decoder| {
        while let Some(frame) = decoder.next_frame() {
            if let Ok(frame) = &frame {
                let length = match frame.data {
                    Payload::Text(text) => text.len(),
                    Payload::Bytes(bytes) => bytes.len(),
                };
                // A byte that is not UTF-8 becomes the three bytes of U+FFFD.
                assert!(length <= 3 * max_frame, "a frame of {length} bytes is above {max_frame}");
            }
            found.push(format!("{frame:?}"));
            assert!(found.len() <= 2 * bytes.len() + 2, "more frames than bytes");
        }
    };
    for chunk in bytes.chunks(cut.min(bytes.len().max(1))) {
        decoder.push(chunk);
        drain(&mut decoder);
    }
    decoder.finish();
    drain(&mut decoder);
    found
}

/// A format's reader turns any bytes into a valid stream, the same for any split; every writer can write it, and its
/// AG-UI form reads back as the same events.
pub fn format(name: &str, data: &[u8]) {
    let [steer, cut, bytes @ ..] = data else { return };
    let format = Format::find(name).expect("the format is built in");
    let framing = format.reads[usize::from(steer & 0x3f) % format.reads.len()];
    let lenient = steer & 0x80 != 0;
    let (events, failure) = read(format, framing, lenient, bytes, usize::MAX);
    let again = read(format, framing, lenient, bytes, 1 + usize::from(*cut));
    assert_eq!((&again.0, &again.1), (&events, &failure), "the cut changes the events");
    let mut checker = Checker::new();
    for event in &events {
        assert_eq!(checker.check(event), None, "the guard let out an invalid event");
    }
    assert_eq!(checker.end(), None, "the guard left the stream open");
    for target in FORMATS {
        for profile in target.profiles {
            let (written, whole) = write(target, profile.name, &events);
            let restores = target.name.starts_with("hai");
            let exact = (profile.name == "1" && target.ordered) || restores;
            if exact || (target.ordered && profile.name == "chunks") {
                let (back, failure) = read(target, profile.framing, false, &written, usize::MAX);
                assert_eq!(failure, None, "our own {}@{} is refused", target.name, profile.name);
                if exact && whole {
                    assert_eq!(kinds(&back), kinds(&events), "{} changes the events", target.name);
                }
            }
        }
    }
    folds_alike(&events);
}

fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::kind).collect()
}

/// Compaction does not change the client's messages and state, and a client can join a run at any position.
fn folds_alike(events: &[Event]) {
    let fold = |events: &[Event]| {
        let mut fold = Fold::new();
        events.iter().for_each(|event| fold.apply(event));
        fold.into_parts()
    };
    assert_eq!(fold(&compact(events)), fold(events), "compacting changes the fold");
    let mut join = Join::new(Fold::new());
    for event in events.iter().take(events.len() / 2) {
        join.apply(event);
    }
    let mut checker = Checker::new();
    for event in join.prelude() {
        assert_eq!(checker.check(&event), None, "the prelude is not valid");
    }
}

fn read(
    format: &Format,
    framing: Framing,
    lenient: bool,
    bytes: &[u8],
    cut: usize,
) -> (Vec<Event>, Option<String>) {
    let options = SourceOptions { lenient, ..SourceOptions::default() };
    let mut source = GuardedSource::new(format, framing, &options).expect("the format has a reader");
    let mut events = Vec::new();
    let mut failure = None;
    for chunk in bytes.chunks(cut.min(bytes.len().max(1))) {
        failure = failure.or(source.push(chunk, &mut |event| events.push(event)).err());
    }
    failure = failure.or(source.end(&StreamEnd::Closed, &mut |event| events.push(event)).err());
    (events, failure.map(|error| error.to_string()))
}

/// The events as bytes, and true if none of them was dropped.
fn write(format: &Format, profile: &str, events: &[Event]) -> (Vec<u8>, bool) {
    let options = Options::default();
    let setup = Setup { thread: "thread".into(), run: "run".into(), options: &options };
    let profile = format.profile(profile).expect("the profile is the format's own");
    let mut writer = format.writer.expect("a format with profiles has a writer")(profile, &setup);
    let mut frames = Frames::new(profile.framing);
    let mut whole = true;
    for event in events {
        whole &= !matches!(writer.write(event, &mut frames), Fidelity::Dropped(_));
        frames.finish_event(None);
    }
    writer.end(&mut frames);
    (frames.take().to_vec(), whole)
}

/// A readable request can be written and read again, as JSON and as protobuf.
pub fn ag_ui_input(data: &[u8]) {
    let mut tally = Tally::default();
    if let Ok(input) = ag_ui::proto::input_from_proto(data, &mut tally) {
        let again = ag_ui::proto::input_to_proto(&input);
        ag_ui::proto::input_from_proto(&again, &mut tally).expect("our own binary request is refused");
    }
    let Ok(input) = ag_ui::input::from_json(&String::from_utf8_lossy(data), &mut tally) else { return };
    let text = ag_ui::input::to_json(&input);
    let back = ag_ui::input::from_json(&text, &mut tally).expect("our own request is refused");
    assert_eq!(ag_ui::input::to_json(&back), text, "writing a request changes it");
    let bytes = ag_ui::proto::input_to_proto(&back);
    ag_ui::proto::input_from_proto(&bytes, &mut tally).expect("our own binary request is refused");
}

/// A readable AI SDK request can be written and read again, for each version, and its messages are a history that a
/// client can load.
pub fn ai_sdk_input(data: &[u8]) {
    let mut tally = Tally::default();
    let body = String::from_utf8_lossy(data);
    let Ok(request) = ai_sdk::input::from_json(&body, "thread", "run", &mut tally) else { return };
    let input = &request.input;
    for version in 5..=7 {
        let history = ai_sdk::input::ui_messages(&input.messages, &[], version);
        let Ok(Value::Array(history)) = serde_json::from_str(&history) else {
            panic!("the history is not a list: {history}");
        };
        if history.is_empty() {
            continue;
        }
        let text = ai_sdk::input::to_json(input, version);
        let back = ai_sdk::input::from_json(&text, "thread", "run", &mut tally);
        let back = back.unwrap_or_else(|error| panic!("our own request is refused: {error}\n{text}"));
        assert_eq!(back.input.thread, input.thread, "the thread changes");
        assert_eq!(ai_sdk::input::to_json(&back.input, version), text, "writing a request changes it");
    }
}

/// A readable HAI request can be written and read again, as the same request.
pub fn hai_input(data: &[u8]) {
    let mut tally = Tally::default();
    let (thread, run) = ("thread".into(), "run".into());
    let Ok(input) = hai::input::from_json(&String::from_utf8_lossy(data), &thread, &run, &mut tally) else {
        return;
    };
    let text = hai::input::to_json(&input);
    let back = hai::input::from_json(&text, &thread, &run, &mut tally).expect("our own request is refused");
    assert_eq!(hai::input::to_json(&back), text, "writing a request changes it");
}

/// A readable AG-UI request becomes a request to every kind of server.
pub fn requests(data: &[u8]) {
    let mut tally = Tally::default();
    let Ok(input) = ag_ui::input::from_json(&String::from_utf8_lossy(data), &mut tally) else { return };
    let body = langgraph::input::run_request_body(&input, &langgraph::input::RequestSettings::new("graph"));
    assert!(body.is_object(), "the request to LangGraph is not an object");
    let model = openai::input::ModelConfig { name: "model", system: Some("system") };
    let text = openai::input::to_json(&input, model);
    assert!(serde_json::from_str::<Value>(&text).is_ok(), "the request to OpenAI is not JSON: {text}");
    let api = adk::input::AdkApi::new("app", "user");
    let created = api.create_session(&input);
    assert!(created.path.starts_with('/') && !created.path.contains([' ', '\n', '\r']), "{}", created.path);
    let known = adk::input::KnownSession { state: None, pending: &[], messages: &[] };
    // A request that has nothing for the agent is refused.
    let _ = api.run(&input, known);
}

/// Responses of an ADK server other than streams are read or refused.
pub fn session(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut tally = Tally::default();
    let _ = adk::input::read_session(&text, &mut tally);
    let _ = adk::input::read_session_list(&text);
    let _ = adk::input::artifact::read_names(&text);
    let _ = adk::input::artifact::read(&text);
}

/// JSON that is kept is compact, means the same, and can be kept again unchanged.
pub fn json(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(kept) = Json::parse(&text) else { return };
    let again = Json::parse(kept.get()).expect("our own JSON is refused");
    assert_eq!(kept.get(), again.get(), "keeping JSON twice changes it");
    assert!(!kept.get().contains(['\n', '\r']), "a line break in {}", kept.get());
    let value: Value = serde_json::from_str(kept.get()).expect("our own JSON is not JSON");
    // A lone surrogate, which most parsers refuse, was replaced.
    if let Ok(original) = serde_json::from_str::<Value>(&text) {
        assert_eq!(value, original, "keeping JSON changes its meaning");
    }
}

/// A detected format reads the stream in the detected framing.
pub fn detect(data: &[u8]) {
    for is_whole in [false, true] {
        if let Some((format, framing)) = detect_format(data, is_whole) {
            assert!(format.reads.contains(&framing), "{} is not read from {framing:?}", format.name);
            read(format, framing, true, data, usize::MAX);
        }
    }
}

/// A patch applies completely or not at all, and a difference turns one document into the other.
///
/// The input is up to three lines: two documents and a patch.
pub fn patch(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let mut document = || serde_json::from_str::<Value>(lines.next()?).ok();
    let (Some(from), Some(to)) = (document(), document()) else { return };
    let limits = Limits::default();
    let mut there = from.clone();
    apply(&mut there, &diff(&from, &to), &limits).expect("a difference applies");
    assert_eq!(there, to, "a difference leads elsewhere");
    let Some(operations) = lines.next().and_then(parse_patch) else { return };
    let mut patched = from.clone();
    match apply(&mut patched, &operations, &limits) {
        Ok(()) => {
            let mut again = from.clone();
            let difference = diff(&from, &patched);
            apply(&mut again, &difference, &limits).expect("a difference applies");
            assert_eq!(again, patched, "a difference leads elsewhere");
        }
        Err(_) => assert_eq!(patched, from, "a patch that failed left something behind"),
    }
}

/// Reads a patch in its usual place: inside an event.
fn parse_patch(operations: &str) -> Option<Patch> {
    let frame = format!(r#"{{"type":"STATE_DELTA","delta":{operations}}}"#);
    let (events, _) = read(&ag_ui::FORMAT, Framing::Lines, false, frame.as_bytes(), usize::MAX);
    events.into_iter().find_map(|event| match event.body {
        Body::StateDelta { patch } => Some(patch),
        _ => None,
    })
}
