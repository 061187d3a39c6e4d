//! Measures the SSE decoder and `sse-stream` on the same bytes. Used by `bench/framing` and `bench/ag-ui`.
//!
//! ```text
//! cargo run --release -p agentwire-tools --bin bench_framing [PART OF A NAME]
//! ```
//!
//! The two decoders take turns and the best of several rounds counts, so that a busy machine disturbs both alike.
//! Times are CPU times where the system reports them, otherwise wall-clock times.

use std::{
    convert::Infallible,
    env, fs,
    hint::black_box,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use agentwire_core::framing::{DEFAULT_MAX_FRAME, SseDecoder};
use futures_util::{Stream, stream, task::noop_waker_ref};
use sse_stream::SseByteStream;

/// The size of the stream: a few times the size of the CPU caches.
const STREAM: usize = 8 * 1024 * 1024;
const CHUNKS: [usize; 3] = [64, 1400, 16384];
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(300);

/// Decodes the chunks; returns the number of frames and of payload bytes.
type Decode = fn(&[&[u8]]) -> (usize, usize);

fn main() {
    let ascii = "the quick brown fox jumps over the lazy dog, ";
    let chinese =
        "\u{654f}\u{6377}\u{7684}\u{68d5}\u{8272}\u{72d0}\u{72f8}\u{8df3}\u{8fc7}\u{61d2}\u{72d7}\u{ff0c}";
    let events = [
        ("430 bytes, ASCII", event(ascii, 430, "")),
        (
            "430 bytes, ASCII, with event and id",
            event(ascii, 430, "event: TEXT_MESSAGE_CONTENT\nid: run-1:12345\n"),
        ),
        ("430 bytes, Chinese", event(chinese, 430, "")),
        ("100 bytes, ASCII", event(ascii, 100, "")),
        ("8000 bytes, ASCII", event(ascii, 8000, "")),
    ];
    let wanted = env::args().nth(1).unwrap_or_default();
    println!("{:<38}{:>7}{:>12}{:>12}{:>8}", "events", "chunks", "agentwire", "sse-stream", "ratio");
    for (name, event) in events.iter().filter(|(name, _)| name.contains(&wanted)) {
        let stream = event.repeat(STREAM / event.len());
        for size in CHUNKS {
            let chunks: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            assert_eq!(agentwire(&chunks), sse_stream(&chunks), "both must find the same frames");
            let (mut ours, mut theirs) = (0.0_f64, 0.0_f64);
            for _ in 0..ROUNDS {
                ours = ours.max(rate(agentwire, &chunks, stream.len()));
                theirs = theirs.max(rate(sse_stream, &chunks, stream.len()));
            }
            println!("{name:<38}{size:>7}{ours:>7.0} MB/s{theirs:>7.0} MB/s{:>7.2}x", ours / theirs);
        }
    }
}

/// An AG-UI event of about `length` bytes, including its blank line.
fn event(text: &str, length: usize, fields: &str) -> String {
    let head = r#"data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"0199-a1b2","delta":""#;
    let room = length.saturating_sub(head.len() + fields.len() + 4);
    let delta: String = text
        .chars()
        .cycle()
        .scan(room, |left, character| {
            *left = left.checked_sub(character.len_utf8())?;
            Some(character)
        })
        .collect();
    format!("{fields}{head}{delta}\"}}\n\n")
}

/// Megabytes per second.
fn rate(decode: Decode, chunks: &[&[u8]], bytes: usize) -> f64 {
    let started = Instant::now();
    let before = cpu_time();
    let mut times = 0;
    while started.elapsed() < ROUND {
        black_box(decode(black_box(chunks)));
        times += 1;
    }
    let spent = match (before, cpu_time()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => started.elapsed(),
    };
    (bytes * times) as f64 / spent.as_secs_f64() / 1e6
}

/// The CPU time of this thread.
fn cpu_time() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn agentwire(chunks: &[&[u8]]) -> (usize, usize) {
    let mut decoder = SseDecoder::new(DEFAULT_MAX_FRAME);
    let (mut frames, mut bytes) = (0, 0);
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(frame) = decoder.next_frame() {
            let frame = black_box(frame.expect("a frame"));
            frames += 1;
            bytes += frame.text().len();
        }
    }
    (frames, bytes)
}

fn sse_stream(chunks: &[&[u8]]) -> (usize, usize) {
    let mut decoder =
        SseByteStream::new(stream::iter(chunks.iter().map(|chunk| Ok::<_, Infallible>(*chunk))));
    let mut context = Context::from_waker(noop_waker_ref());
    let (mut frames, mut bytes) = (0, 0);
    while let Poll::Ready(Some(frame)) = Pin::new(&mut decoder).poll_next(&mut context) {
        let frame = black_box(frame.expect("a frame"));
        frames += 1;
        bytes += frame.data.map_or(0, |data| data.len());
    }
    (frames, bytes)
}
