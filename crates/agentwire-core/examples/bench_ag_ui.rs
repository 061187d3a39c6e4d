//! What a text delta costs: AG-UI SSE through the whole chain, and the writer alone.
//!
//! Run by `bench/run`. CPU time of this process, so that a busy machine changes little; no assertions.

use std::hint::black_box;

use agentwire_core::{
    convert::{Converter, Source, SourceOptions},
    event::{Body, Event},
    format::{Format, Options, Setup},
    framing::{Frames, Framing},
};

const DELTAS: u32 = 1_000_000;

fn main() {
    let format = Format::find("ag-ui").expect("the format is built in");
    let profile = format.profile("").expect("the format has a default profile");
    let options = Options::default();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };

    let mut stream = String::from("data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n");
    stream.push_str(
        "data: {\"type\":\"TEXT_MESSAGE_START\",\"messageId\":\"msg_01H\",\"role\":\"assistant\"}\n\n",
    );
    for n in 0..DELTAS {
        stream.push_str(
            "data: {\"type\":\"TEXT_MESSAGE_CONTENT\",\"messageId\":\"msg_01H\",\"delta\":\" token",
        );
        stream.push_str(&(n % 100).to_string());
        stream.push_str("\"}\n\n");
    }
    let before = cpu_ticks();
    let source =
        Source::new(format, Framing::Sse, &SourceOptions::default()).expect("the format has a reader");
    let mut converter =
        Converter::new(source, format, profile, None, &setup).expect("the format has a writer");
    for chunk in stream.as_bytes().chunks(1400) {
        converter.push(chunk).expect("the stream is valid");
        converter.output().drain(|bytes| black_box(bytes.len()));
    }
    report("AG-UI SSE → canonical → AG-UI SSE", cpu_ticks() - before);

    let mut writer = format.writer.expect("the format has a writer")(profile, &setup);
    let event = Event::new(Body::TextDelta { message: "msg_01H".into(), delta: " token17".into() });
    let mut frames = Frames::new(Framing::Sse);
    let before = cpu_ticks();
    for n in 0..DELTAS {
        writer.write(black_box(&event), &mut frames);
        frames.finish_event(None);
        if n % 16 == 0 {
            frames.drain(|bytes| black_box(bytes.len()));
        }
    }
    report("writer alone", cpu_ticks() - before);
}

/// User and system time of this process, in hundredths of a second.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |at: usize| behind_name.split_whitespace().nth(at).and_then(|text| text.parse::<u64>().ok());
    field(11).unwrap_or(0) + field(12).unwrap_or(0)
}

fn report(what: &str, ticks: u64) {
    let micros = ticks as f64 * 10_000.0 / f64::from(DELTAS);
    println!("{what}: {micros:.3} µs CPU per text delta");
}
