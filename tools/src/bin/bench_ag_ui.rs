//! Measures the cost of an AG-UI text delta in reader and writer. Used by `bench/ag-ui`.
//!
//! ```text
//! cargo run --release -p agentwire-tools --bin bench_ag_ui FILE.sse [chain|reader|writer|FORMAT@PROFILE ROUNDS]
//! ```
//!
//! Times are CPU times where the system reports them, otherwise wall-clock times; the best of several rounds counts.
//! Allocations are those of the last round, when every buffer has reached its size, so that the output buffer is not
//! counted.
//!
//! With a part and a number of rounds it repeats that part and prints the number of deltas. The difference between the
//! instruction counts of two such calls is the cost of the deltas without the cost of the start.

use std::{
    alloc::System,
    env, fs,
    hint::black_box,
    time::{Duration, Instant},
};

use agentwire_core::{
    convert::Converter,
    event::{Body, Event, StreamEnd},
    format::{Format, Options, Profile, Setup, Writer},
    framing::{Frames, Framing},
    source::{GuardedSource, SourceOptions},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ROUNDS: usize = 7;
/// The read size of the command line.
const CHUNK: usize = 64 * 1024;
/// The number of events per write.
const BATCH: usize = 64;
/// The message id of the deltas in the measurement of the writer alone.
const MESSAGE: &str = "message-1";

fn main() {
    let mut arguments = env::args().skip(1);
    let file = arguments.next().expect("the first argument is a file of server-sent events");
    let bytes = fs::read(&file).expect("the file can be read");
    let events = read(&bytes);
    // All deltas in one message, so that the writer alone opens and closes none.
    let deltas: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::TextDelta { delta, .. } => Some(delta.clone()),
            _ => None,
        })
        .map(|delta| Event::new(Body::TextDelta { message: MESSAGE.into(), delta }))
        .collect();
    match (arguments.next(), arguments.next().and_then(|rounds| rounds.parse().ok())) {
        (None, None) => table(&bytes, &events, &deltas),
        (Some(part), Some(rounds)) => {
            repeat(&part, rounds, &bytes, &deltas);
            println!("{}", deltas.len() * rounds);
        }
        _ => panic!("a part needs a number of rounds"),
    }
}

/// Prints the cost of each part.
fn table(bytes: &[u8], events: &[Event], deltas: &[Event]) {
    println!("{} events, {} text deltas, {} bytes", events.len(), deltas.len(), bytes.len());
    println!("{:<30}{:>10}{:>20}", "", "µs/delta", "allocations/delta");
    let per_delta = |name: &str, work: &mut dyn FnMut()| {
        let (mut best, mut allocations) = (Duration::MAX, 0);
        for _ in 0..ROUNDS {
            let started = now();
            let region = Region::new(ALLOCATOR);
            work();
            let change = region.change();
            best = best.min(now().saturating_sub(started));
            allocations = change.allocations + change.reallocations;
        }
        let micros = best.as_secs_f64() * 1e6 / deltas.len() as f64;
        let each = allocations as f64 / deltas.len() as f64;
        println!("{name:<30}{micros:>10.3}{each:>20.3}   ({allocations} in all)");
    };
    for target in ["ag-ui@1", "ag-ui@chunks", "ag-ui@0", "ag-ui-proto@1"] {
        per_delta(target, &mut || convert(bytes, target));
    }
    per_delta("reader alone", &mut || drop(black_box(read(bytes))));
    for target in
        ["ag-ui@1", "ag-ui@chunks", "ag-ui@0", "ag-ui-proto@1", "langgraph@server", "langgraph@protocol"]
    {
        // Writer and buffer are created before the measurement, as in a server.
        let mut output = Output::new(target);
        per_delta(&format!("writer alone, {target}"), &mut || output.write(deltas));
    }
}

/// Repeats one part.
fn repeat(part: &str, rounds: usize, bytes: &[u8], deltas: &[Event]) {
    let mut output = Output::new(if part.contains('@') { part } else { "ag-ui@1" });
    for _ in 0..rounds {
        match part {
            "chain" => convert(bytes, "ag-ui@1"),
            "reader" => drop(black_box(read(bytes))),
            "writer" => output.write(deltas),
            target if target.contains('@') => output.write(deltas),
            other => panic!("unknown part `{other}` (allowed: chain, reader, writer, FORMAT@PROFILE)"),
        }
    }
}

/// A writer and its output buffer.
struct Output {
    writer: Box<dyn Writer>,
    frames: Frames,
}

impl Output {
    fn new(target: &str) -> Self {
        let (format, profile) = format(target);
        let options = Options::default();
        let mut writer = format.writer.expect("the format has a writer")(profile, &setup(&options));
        let mut frames = Frames::new(profile.framing);
        let start = Body::TextStart { message: MESSAGE.into(), role: None, name: None };
        writer.write(&Event::new(start), &mut frames);
        frames.finish_event(None);
        Self { writer, frames }
    }

    fn write(&mut self, deltas: &[Event]) {
        for batch in deltas.chunks(BATCH) {
            for event in batch {
                self.writer.write(black_box(event), &mut self.frames);
                self.frames.finish_event(None);
            }
            self.frames.drain(|bytes| {
                black_box(bytes);
            });
        }
    }
}

fn format(target: &str) -> (&'static Format, &'static Profile) {
    let (name, profile) = target.split_once('@').expect("targets name their profile");
    let format = Format::find(name).expect("the format is built in");
    (format, format.profile(profile).expect("the profile is built in"))
}

fn setup(options: &Options) -> Setup<'_> {
    Setup { thread: "thread".into(), run: "run".into(), options }
}

fn source() -> GuardedSource {
    let format = Format::find("ag-ui").expect("the format is built in");
    GuardedSource::new(format, Framing::Sse, &SourceOptions::default()).expect("the format has a reader")
}

fn read(bytes: &[u8]) -> Vec<Event> {
    let mut source = source();
    let mut events = Vec::new();
    for chunk in bytes.chunks(CHUNK) {
        source.push(chunk, &mut |event| events.push(event)).expect("the stream is well formed");
    }
    source.end(&StreamEnd::Closed, &mut |event| events.push(event)).expect("the stream is well formed");
    events
}

fn convert(bytes: &[u8], target: &str) {
    let (format, profile) = format(target);
    let options = Options::default();
    let mut converter =
        Converter::new(source(), format, profile, None, &setup(&options)).expect("the format has a writer");
    for chunk in bytes.chunks(CHUNK) {
        converter.push(chunk).expect("the stream is well formed");
        converter.output().drain(|bytes| {
            black_box(bytes);
        });
    }
    converter.end(&StreamEnd::Closed).expect("the stream is well formed");
    converter.output().drain(|bytes| {
        black_box(bytes);
    });
}

/// The CPU time of this thread, or the wall-clock time where the system does not report it.
fn now() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let spent = fs::read_to_string("/proc/thread-self/schedstat");
    match spent.ok().and_then(|text| text.split(' ').next()?.parse().ok()) {
        Some(nanoseconds) => Duration::from_nanos(nanoseconds),
        None => START.get_or_init(Instant::now).elapsed(),
    }
}
