//! Measures the HAI writers and readers. Used by `bench/hai`.
//!
//! ```text
//! cargo run --release -p agentwire-tools --bin bench_hai
//! ```
//!
//! Prints one JSON object: nanoseconds of CPU time per text delta for each profile, with AG-UI for comparison. The
//! figure of a reader includes framing and guard. The best of several rounds counts, because it is the least disturbed
//! one.

use std::{fs, hint::black_box};

use agentwire_core::{
    event::{Body, Event, MessageId, Role, RunStarted, StreamEnd},
    format::{Format, Options, Profile, Setup},
    framing::{Frames, Framing},
    source::{GuardedSource, SourceOptions},
};
use serde_json::{Map, json};

const ROUNDS: usize = 5;
/// The minimum duration of a round in nanoseconds. The system counts CPU time in ticks of up to 4 ms, and the best of
/// several rounds would be one whose last tick was not counted; a round therefore lasts dozens of ticks.
const ROUND: f64 = 200e6;
/// The number of deltas between two readings of the clock.
const DELTAS: usize = 200_000;
/// The number of deltas in the stream of the reader. A long message has some thousands.
const READ: usize = 20_000;
const WORDS: [&str; 10] =
    ["Hello", " there", ", this", " is", " \"quoted\"", " text", ".\n", " Und", " so", " wörter"];

fn main() {
    let mut writers = Map::new();
    let mut readers = Map::new();
    for name in ["hai", "hai-proto", "ag-ui"] {
        let format = Format::find(name).expect("the format is built in");
        // One AG-UI profile is enough for the comparison.
        let profiles = if name == "ag-ui" { &format.profiles[..1] } else { format.profiles };
        for profile in profiles {
            let key = format!("{name}@{}", profile.name);
            writers.insert(key.clone(), json!(best(|| writer(format, profile))));
            let bytes = stream(format, profile);
            readers.insert(key, json!(best(|| reader(format, profile.framing, &bytes))));
        }
    }
    println!("{}", json!({"writer": writers, "reader": readers}));
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

/// The start of a run and of its message, and ten deltas, with timestamps as in a live stream.
fn events() -> (Vec<Event>, Vec<Event>) {
    let message: MessageId = "run--7f1d1a52-8f0b-4a0e-9a55-0c5d5f0b7a11".into();
    let timed = |body| {
        let mut event = Event::new(body);
        event.timestamp = Some(1_763_000_000_000);
        event
    };
    let start = Body::TextStart { message: message.clone(), role: Some(Role::Assistant), name: None };
    let prologue = vec![timed(Body::RunStarted(Box::new(RunStarted::new("t", "r")))), timed(start)];
    let delta = |word: &&str| timed(Body::TextDelta { message: message.clone(), delta: (*word).into() });
    (prologue, WORDS.iter().map(delta).collect())
}

/// Nanoseconds per text delta written.
fn writer(format: &Format, profile: &'static Profile) -> f64 {
    let options = Options::default();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    let mut writer = format.writer.expect("the format has a writer")(profile, &setup);
    let mut out = Frames::new(profile.framing);
    let (prologue, deltas) = events();
    for event in &prologue {
        writer.write(event, &mut out);
        out.finish_event(None);
    }
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

/// A long message as bytes.
fn stream(format: &Format, profile: &'static Profile) -> Vec<u8> {
    let options = Options::default();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    let mut writer = format.writer.expect("the format has a writer")(profile, &setup);
    let mut out = Frames::new(profile.framing);
    let (prologue, deltas) = events();
    for event in prologue.iter().chain(deltas.iter().cycle().take(READ)) {
        writer.write(event, &mut out);
        out.finish_event(None);
    }
    out.take().to_vec()
}

/// Nanoseconds per text delta read.
fn reader(format: &'static Format, framing: Framing, bytes: &[u8]) -> f64 {
    round(|| {
        let mut source = GuardedSource::new(format, framing, &SourceOptions::default()).expect("a reader");
        let mut deltas = 0;
        let mut sink = |event: Event| deltas += usize::from(matches!(event.body, Body::TextDelta { .. }));
        for chunk in bytes.chunks(16 * 1024) {
            source.push(black_box(chunk), &mut sink).expect("our own stream is valid");
        }
        source.end(&StreamEnd::Closed, &mut sink).expect("our own stream is valid");
        assert_eq!(deltas, READ, "a delta was lost");
        deltas
    })
}

/// The CPU time of this thread in nanoseconds.
fn cpu_time() -> f64 {
    let text =
        fs::read_to_string("/proc/thread-self/schedstat").expect("Linux reports the CPU time of a thread");
    text.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number")
}
