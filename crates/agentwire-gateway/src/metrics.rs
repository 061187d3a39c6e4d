//! What `/metrics` shows. No ids as labels: what has no bound has no place there.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// One label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Agent {
    pub(crate) agent: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Ending {
    pub(crate) agent: String,
    pub(crate) status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Rule {
    pub(crate) rule: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Verdict {
    pub(crate) verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Code {
    pub(crate) code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Format {
    pub(crate) format: &'static str,
}

/// Every figure of the gateway.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) runs_started: Family<Agent, Counter>,
    pub(crate) runs_ended: Family<Ending, Counter>,
    pub(crate) runs_live: Gauge,
    pub(crate) runs_repaired: Counter,
    pub(crate) readers: Family<Format, Gauge>,
    pub(crate) readers_cut: Counter,
    pub(crate) events: Counter,
    pub(crate) event_bytes: Counter,
    pub(crate) repairs: Family<Rule, Counter>,
    pub(crate) recoveries: Family<Verdict, Counter>,
    pub(crate) refusals: Family<Code, Counter>,
    pub(crate) lock_waits: Counter,
    pub(crate) flushes: Counter,
    pub(crate) flush_seconds: Histogram,
    pub(crate) flush_failures: Counter,
    pub(crate) upstream_errors: Family<Code, Counter>,
    pub(crate) connections: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("agentwire");
        macro_rules! register {
            ($($field:ident: $make:expr, $help:literal;)+) => {{
                $(let $field = $make; registry.register(stringify!($field), $help, $field.clone());)+
                Self { $($field,)+ registry }
            }};
        }
        register! {
            runs_started: Family::default(), "Runs that were started";
            runs_ended: Family::default(), "Runs that ended, by how";
            runs_live: Gauge::<i64, std::sync::atomic::AtomicI64>::default(), "Runs that are going on or wait for their thread";
            runs_repaired: Counter::<u64, AtomicU64>::default(), "Orphaned runs that were given an ending";
            readers: Family::default(), "Connections that follow a run, by format";
            readers_cut: Counter::<u64, AtomicU64>::default(), "Readers that were cut because they did not keep up";
            events: Counter::<u64, AtomicU64>::default(), "Events that were logged";
            event_bytes: Counter::<u64, AtomicU64>::default(), "Bytes of events that were logged";
            repairs: Family::default(), "Repairs of agents' streams, by rule";
            recoveries: Family::default(), "Reconnects, by verdict";
            refusals: Family::default(), "Requests that were refused, by code";
            lock_waits: Counter::<u64, AtomicU64>::default(), "Runs that found their thread taken";
            flushes: Counter::<u64, AtomicU64>::default(), "Appends to the log";
            flush_seconds: Histogram::new(exponential_buckets(0.000_05, 4.0, 9)), "How long an append to the log took";
            flush_failures: Counter::<u64, AtomicU64>::default(), "Appends to the log that failed and were tried again";
            upstream_errors: Family::default(), "Runs that failed on the agent's side, by code";
            connections: Gauge::<i64, std::sync::atomic::AtomicI64>::default(), "Open connections";
        }
    }
}

impl Metrics {
    /// The figures as text.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
