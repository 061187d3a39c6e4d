//! Converts fixtures and requests with the AI SDK formats. Used by `e2e/ai-sdk`, which compares the results with the
//! official packages.
//!
//! Each input line is a JSON object, and so is its output line:
//!
//! * `{"convert": {"path", "format", "options"}}`: a fixture in every profile of `ai-sdk`, as AG-UI lines, and folded
//!   into messages;
//! * `{"request": "…"}`: the canonical request of a body, or `{"error"}`;
//! * `{"history": {"path", "format", "options", "version"}}`: the folded messages as `UIMessage[]`.
//!
//! One process handles all lines, because a process per fixture and profile would spend nine tenths of its time on its
//! start.

use std::{
    fs,
    io::{self, BufRead, Write},
};

use agentwire_core::{
    Tally,
    event::{Event, StreamEnd},
    fold::Fold,
    format::{Format, Options, Setup, ag_ui, ai_sdk},
    framing::{Frames, Framing, detect},
    source::{GuardedSource, SourceOptions},
};
use serde_json::{Map, Value, json};

fn main() -> io::Result<()> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let response = if let Some(body) = request["request"].as_str() {
            read_request(body)
        } else if request["convert"].is_object() {
            convert(&request["convert"])
        } else {
            history(&request["history"])
        };
        writeln!(stdout, "{response}")?;
    }
    stdout.flush()
}

fn read_request(body: &str) -> Value {
    match ai_sdk::input::from_json(body, "thread", "run", &mut Tally::default()) {
        Err(error) => json!({"error": error.to_string()}),
        Ok(request) => {
            let input: Value =
                serde_json::from_str(&ag_ui::input::to_json(&request.input)).expect("our own JSON is valid");
            json!({
                "input": input,
                "trigger": format!("{:?}", request.trigger),
                "message": request.message.as_deref(),
                "continues": request.continues.as_deref(),
                "answers": request.answered_calls.iter().map(|call| call.as_str()).collect::<Vec<_>>(),
            })
        }
    }
}

fn convert(fixture: &Value) -> Value {
    let (events, failure) = read(fixture);
    let mut profiles = Map::new();
    for profile in ai_sdk::FORMAT.profiles {
        profiles.insert(profile.name.into(), write(&ai_sdk::FORMAT, profile.name, None, &events).into());
    }
    let lines = write(&ag_ui::FORMAT, "1", Some(Framing::Lines), &events);
    let mut fold = Fold::new();
    events.iter().for_each(|event| fold.apply(event));
    let messages: Value =
        serde_json::from_str(&ag_ui::messages_to_json(fold.messages())).expect("our own JSON is valid");
    json!({"profiles": profiles, "lines": lines, "messages": messages, "failure": failure})
}

fn history(fixture: &Value) -> Value {
    let (events, _) = read(fixture);
    let mut fold = Fold::new();
    events.iter().for_each(|event| fold.apply(event));
    let interrupts = fold.interrupts().to_vec();
    let version = u8::try_from(fixture["version"].as_u64().unwrap_or(5)).unwrap_or(5);
    let messages = ai_sdk::input::ui_messages(fold.messages(), &interrupts, version);
    serde_json::from_str(&messages).expect("our own JSON is valid")
}

/// The events of a fixture, and the error that ended it, if any.
fn read(fixture: &Value) -> (Vec<Event>, Option<String>) {
    let path = fixture["path"].as_str().expect("a path");
    let format = Format::find(fixture["format"].as_str().expect("a format")).expect("a known format");
    let pairs = fixture["options"].as_array().map(Vec::as_slice).unwrap_or_default();
    let options =
        Options::parse(pairs.iter().filter_map(Value::as_str), format.options).expect("known options");
    let bytes = fs::read(path).expect("a fixture can be read");
    let framing = detect(&bytes, format.reads).expect("the framing can be detected");
    let options =
        SourceOptions { thread: "thread".into(), run: "run".into(), options, ..SourceOptions::default() };
    let mut source = GuardedSource::new(format, framing, &options).expect("the format has a reader");
    let mut events = Vec::new();
    let mut sink = |event| events.push(event);
    let failure =
        source.push(&bytes, &mut sink).and_then(|()| source.end(&StreamEnd::Closed, &mut sink)).err();
    (events, failure.map(|failure| failure.to_string()))
}

fn write(format: &Format, profile: &str, framing: Option<Framing>, events: &[Event]) -> String {
    let profile = format.profile(profile).expect("the profile is known");
    let options = Options::default();
    let setup = Setup { thread: "thread".into(), run: "run".into(), options: &options };
    let mut writer = format.writer.expect("the format has a writer")(profile, &setup);
    let mut out = Frames::new(framing.unwrap_or(profile.framing));
    for event in events {
        writer.write(event, &mut out);
        out.finish_event(None);
    }
    writer.end(&mut out);
    String::from_utf8(out.take().to_vec()).expect("the output is UTF-8")
}
