//! Measures the AI SDK writers, and LangGraph → AI SDK. Used by `bench/ai-sdk`.
//!
//! ```text
//! cargo run --release -p agentwire-tools --bin bench_ai_sdk RECORDING
//! ```
//!
//! Prints one JSON object: nanoseconds of CPU time per text delta of each writer, and per event of the recording
//! (parsing, reading, guarding, writing). The best of several rounds counts, because it is the least disturbed one.

use std::{env, fs, hint::black_box};

use agentwire_core::{
    convert::Converter,
    event::{Body, Event, MessageId, RunStarted, StreamEnd},
    format::{Format, Options, Setup, ai_sdk},
    framing::{Frames, Framing},
    source::{GuardedSource, SourceOptions},
};
use serde_json::{Map, Value, json};

const ROUNDS: usize = 7;
/// The minimum duration of a round in nanoseconds. The system counts CPU time in ticks of up to 4 ms, and the best of
/// several rounds would be one whose last tick was not counted; a round therefore lasts a hundred ticks.
const ROUND: f64 = 400e6;
/// The number of deltas between two readings of the clock.
const DELTAS: usize = 200_000;

fn main() {
    let mut writers = Map::new();
    for profile in ai_sdk::FORMAT.profiles {
        writers.insert(profile.name.into(), json!(best(|| writer(profile.name))));
    }
    let recording = env::args().nth(1).map(|path| fs::read(path).expect("the recording can be read"));
    let langgraph = recording.map(|bytes| {
        let events = bytes.iter().filter(|byte| **byte == b'\n').count();
        json!({"events": events, "bytes": bytes.len(), "ns": best(|| langgraph(&bytes, events))})
    });
    println!("{}", json!({"writer": Value::Object(writers), "langgraph": langgraph}));
}

fn best(mut round: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Repeats `work`, which returns its number of items, until the round is over. Returns nanoseconds per item.
fn round(mut work: impl FnMut() -> usize) -> f64 {
    let before = cpu_time();
    let mut done = 0;
    loop {
        done += work();
        let spent = cpu_time() - before;
        if spent >= ROUND {
            return spent / done as f64;
        }
    }
}

/// Nanoseconds per text delta.
fn writer(profile: &str) -> f64 {
    let format = &ai_sdk::FORMAT;
    let profile = format.profile(profile).expect("the profile is known");
    let options = Options::default();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    let mut writer = format.writer.expect("the format has a writer")(profile, &setup);
    let mut out = Frames::new(profile.framing);
    let message: MessageId = "run--7f1d1a52-8f0b-4a0e-9a55-0c5d5f0b7a11".into();
    let started = Body::RunStarted(Box::new(RunStarted::new("t", "r")));
    writer.write(&Event::new(started), &mut out);
    let words = ["Hello", " there", ", this", " is", " \"quoted\"", " text", ".\n", " Und", " so", " wörter"];
    let deltas: Vec<Event> = words
        .iter()
        .map(|word| Event::new(Body::TextDelta { message: message.clone(), delta: (*word).into() }))
        .collect();
    round(|| {
        for index in 0..DELTAS {
            black_box(writer.write(black_box(&deltas[index % deltas.len()]), &mut out));
            out.finish_event(None);
            // One flush per 32 events, as in a busy server.
            if index % 32 == 0 {
                out.drain(|bytes| black_box(bytes).len());
            }
        }
        DELTAS
    })
}

/// Nanoseconds per event of the recording.
fn langgraph(bytes: &[u8], events: usize) -> f64 {
    let from = Format::find("langgraph").expect("the format is registered");
    let options = Options::default();
    round(|| {
        let source = GuardedSource::new(from, Framing::Lines, &SourceOptions::default()).expect("a reader");
        let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
        let profile = ai_sdk::FORMAT.profile("5").expect("the profile is known");
        let mut converter = Converter::new(source, &ai_sdk::FORMAT, profile, None, &setup).expect("a writer");
        for chunk in bytes.chunks(16 * 1024) {
            converter.push(black_box(chunk)).expect("the recording is valid");
            converter.output().drain(|bytes| black_box(bytes).len());
        }
        converter.end(&StreamEnd::Closed).expect("the recording is valid");
        converter.output().drain(|bytes| black_box(bytes).len());
        events
    })
}

/// The CPU time of this thread in nanoseconds.
fn cpu_time() -> f64 {
    let text =
        fs::read_to_string("/proc/thread-self/schedstat").expect("Linux reports the CPU time of a thread");
    text.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number")
}
