//! Traces: spans of requests and runs, exported by OTLP over HTTP.
//!
//! Off by default. Then nothing of this runs: every caller holds an `Option` that is `None`. The encoding is written by
//! hand (`otlp.rs`): the OpenTelemetry crates would add a gRPC stack or a second HTTP client to the build for one message.
//!
//! A span has ids, names, counts and times. Texts of people and agents are in it only if the configuration asks for them.

mod export;
mod otlp;
mod state;

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::{mpsc, oneshot};

pub(crate) use self::export::Counters;
use self::export::{Exporter, Item, QUEUE};
pub(crate) use self::state::TraceState;
use crate::settings::Traces;

/// The place of a span: what `traceparent` carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpanContext {
    pub(crate) trace: [u8; 16],
    pub(crate) span: [u8; 8],
    pub(crate) is_sampled: bool,
}

impl SpanContext {
    /// Reads `VERSION-TRACE-PARENT-FLAGS` of W3C Trace Context. Later versions may add parts.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('-').collect();
        let [version, trace, span, flags, rest @ ..] = &parts[..] else { return None };
        let [version] = hex::<1>(version)?;
        let is_known = version != 0xff && (version != 0 || rest.is_empty()) && text.len() <= 128;
        let (trace, span, [flags]) = (hex::<16>(trace)?, hex::<8>(span)?, hex::<1>(flags)?);
        let is_valid = is_known && trace != [0; 16] && span != [0; 8];
        is_valid.then_some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }

    /// The value of `traceparent`.
    pub(crate) fn to_traceparent(self) -> String {
        format!("00-{}-{}-{:02x}", Hex(&self.trace), Hex(&self.span), u8::from(self.is_sampled))
    }

    pub(crate) fn trace_id(self) -> String {
        Hex(&self.trace).to_string()
    }

    pub(crate) fn span_id(self) -> String {
        Hex(&self.span).to_string()
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Bytes from lower-case hexadecimal digits.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != N * 2 || !text.bytes().all(is_digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// The kind of a span; the numbers are those of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Texts(Vec<String>),
    Int(i64),
    Float(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) context: SpanContext,
    pub(crate) state: Option<TraceState>,
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Nanoseconds since the epoch.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    pub(crate) links: Vec<SpanContext>,
    /// The status is an error; `error.type` has its code.
    pub(crate) is_error: bool,
}

/// Nanoseconds since the epoch.
pub(crate) fn now() -> u64 {
    nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Makes span contexts and exports ended spans.
pub(crate) struct Tracer {
    /// A trace is sampled if the last eight bytes of its id are below this.
    threshold: u64,
    has_content: bool,
    queue: mpsc::Sender<Item>,
    /// Until the gateway starts.
    exporter: Mutex<Option<Exporter>>,
    counters: Counters,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("threshold", &self.threshold).finish_non_exhaustive()
    }
}

impl Tracer {
    /// The tracer of the settings; `None` if they have no endpoint that can be reached.
    pub(crate) fn new(settings: &Traces, counters: &Counters) -> Option<Self> {
        let (queue, items) = mpsc::channel(QUEUE);
        let exporter = Exporter::new(settings, items, counters.clone())
            .inspect_err(|error| tracing::error!(%error, "traces are off"))
            .ok()?;
        Some(Self {
            threshold: threshold(settings.sample),
            has_content: settings.content,
            queue,
            exporter: Mutex::new(Some(exporter)),
            counters: counters.clone(),
        })
    }

    /// True if spans may have texts of people and agents.
    pub(crate) fn has_content(&self) -> bool {
        self.has_content
    }

    /// Starts the export, once.
    pub(crate) fn start(&self) {
        let exporter = self.exporter.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(exporter) = exporter {
            tokio::spawn(exporter.run());
        }
    }

    /// The context of a new span: in the trace of its parent and sampled as that, or in a trace of its own.
    pub(crate) fn begin(&self, parent: Option<SpanContext>) -> SpanContext {
        let mut random = [0; 24];
        // Fails only where the system has no source of random numbers, and then nothing else works either.
        let _ = SystemRandom::new().fill(&mut random);
        let (own, span) = random.split_at(16);
        let mut context = SpanContext { trace: [0; 16], span: [0; 8], is_sampled: false };
        context.span.copy_from_slice(span);
        match parent {
            Some(parent) => (context.trace, context.is_sampled) = (parent.trace, parent.is_sampled),
            None => {
                context.trace.copy_from_slice(own);
                context.is_sampled = is_below(&context.trace, self.threshold);
            }
        }
        context
    }

    /// Exports an ended span if it is sampled. Never waits: a span that finds the queue full is dropped and counted.
    pub(crate) fn export(&self, span: Span) {
        if span.context.is_sampled && self.queue.try_send(Item::Span(Box::new(span))).is_err() {
            self.counters.dropped.inc();
        }
    }

    /// Waits until the spans so far are exported.
    pub(crate) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        if self.queue.send(Item::Flush(done)).await.is_ok() {
            let _ = is_done.await;
        }
    }
}

/// The share of all traces as a bound of a random number.
fn threshold(share: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped, and saturating")]
    let bound = (share.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
    bound
}

fn is_below(trace: &[u8; 16], threshold: u64) -> bool {
    let mut low = [0; 8];
    low.copy_from_slice(&trace[8..]);
    threshold == u64::MAX || u64::from_be_bytes(low) < threshold
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn trace_contexts_are_read_and_written() {
        let text = format!("00-{TRACE}-{SPAN}-01");
        let context = SpanContext::parse(&text).unwrap();
        assert_eq!((context.to_traceparent(), context.trace_id()), (text, TRACE.to_owned()));
        assert!(context.is_sampled);
        assert!(!SpanContext::parse(&format!("00-{TRACE}-{SPAN}-02")).unwrap().is_sampled);
        let later = SpanContext::parse(&format!("cc-{TRACE}-{SPAN}-03-what-comes")).unwrap();
        assert_eq!(later.to_traceparent(), format!("00-{TRACE}-{SPAN}-01"));
    }

    #[test]
    fn malformed_trace_contexts_are_refused() {
        for bad in [
            String::new(),
            "x".into(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("00-{TRACE}-{SPAN}-é1"),
        ] {
            assert_eq!(SpanContext::parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn shares_of_traces() {
        let of = |low: u64| {
            let mut trace = [7; 16];
            trace[8..].copy_from_slice(&low.to_be_bytes());
            trace
        };
        assert!(is_below(&of(u64::MAX), threshold(1.0)));
        assert!(!is_below(&of(0), threshold(0.0)));
        assert!(is_below(&of(u64::MAX / 4), threshold(0.5)));
        assert!(!is_below(&of(u64::MAX / 4 * 3), threshold(0.5)));
    }
}
