//! The metrics of `/metrics`. No ids as labels: the number of label values must be bounded.

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

/// Labels: an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AgentLabel {
    pub(crate) agent: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StatusLabel {
    pub(crate) agent: String,
    pub(crate) status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RuleLabel {
    pub(crate) rule: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct VerdictLabel {
    pub(crate) verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CodeLabel {
    pub(crate) code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FormatLabel {
    pub(crate) format: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StoreLabel {
    pub(crate) system: String,
    pub(crate) timeline: i32,
    pub(crate) epoch: u32,
}

/// All metrics of the gateway.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) runs_started: Family<AgentLabel, Counter>,
    pub(crate) runs_ended: Family<StatusLabel, Counter>,
    pub(crate) runs_live: Gauge,
    pub(crate) runs_repaired: Counter,
    pub(crate) readers: Family<FormatLabel, Gauge>,
    pub(crate) readers_cut: Counter,
    pub(crate) events: Counter,
    pub(crate) event_bytes: Counter,
    pub(crate) repairs: Family<RuleLabel, Counter>,
    pub(crate) recoveries: Family<VerdictLabel, Counter>,
    pub(crate) refusals: Family<CodeLabel, Counter>,
    pub(crate) lock_waits: Counter,
    pub(crate) flushes: Counter,
    pub(crate) flush_seconds: Histogram,
    pub(crate) flush_failures: Counter,
    pub(crate) upstream_errors: Family<CodeLabel, Counter>,
    pub(crate) unknown_events: Family<AgentLabel, Counter>,
    pub(crate) connections: Gauge,
    pub(crate) breaker_opened: Family<AgentLabel, Counter>,
    pub(crate) breaker_state: Family<AgentLabel, Gauge>,
    pub(crate) memory_bytes: Gauge,
    pub(crate) memory_limit_bytes: Gauge,
    pub(crate) store_server: Family<StoreLabel, Gauge>,
    pub(crate) first_event_seconds: Family<AgentLabel, Histogram, fn() -> Histogram>,
    pub(crate) delivery_seconds: Histogram,
    pub(crate) runs_queued: Gauge,
    pub(crate) lease_age_seconds: Gauge<f64, AtomicU64>,
    pub(crate) store_bytes: Gauge,
    pub(crate) store_free_bytes: Gauge,
    pub(crate) trace_spans_exported: Counter,
    pub(crate) trace_spans_dropped: Counter,
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
            unknown_events: Family::default(), "Native events that could not be interpreted, by agent";
            connections: Gauge::<i64, std::sync::atomic::AtomicI64>::default(), "Open connections";
            breaker_opened: Family::default(), "Times that the circuit breaker of an agent opened";
            breaker_state: Family::default(), "Circuit breaker of an agent: 0 closed, 1 half-open, 2 open";
            memory_bytes: Gauge::<i64, std::sync::atomic::AtomicI64>::default(), "Memory of the process without files";
            memory_limit_bytes: Gauge::<i64, std::sync::atomic::AtomicI64>::default(), "Limit of the memory governor; 0 if there is none";
            store_server: Family::default(), "The server behind the store: 1 for the present one";
            first_event_seconds: Family::new_with_constructor(seconds as fn() -> Histogram), "Time from the request of a run to the first event of its agent, by agent";
            delivery_seconds: Histogram::new(exponential_buckets(0.000_05, 4.0, 9)), "Time from an event of an agent to its delivery to a reader, appending included; sampled";
            runs_queued: Gauge::<i64, std::sync::atomic::AtomicI64>::default(), "Runs that wait for their thread";
            lease_age_seconds: Gauge::<f64, AtomicU64>::default(), "Time since the last renewal of the lease that the store confirmed; 0 without live runs";
            store_bytes: Gauge::<i64, std::sync::atomic::AtomicI64>::default(), "Bytes of the store on disk or in memory";
            store_free_bytes: Gauge::<i64, std::sync::atomic::AtomicI64>::default(), "Unused bytes of the store on disk";
            trace_spans_exported: Counter::<u64, AtomicU64>::default(), "Spans that the collector accepted";
            trace_spans_dropped: Counter::<u64, AtomicU64>::default(), "Spans that were dropped, because the collector was too slow or refused them";
        }
    }
}

/// Buckets from 5 ms to 5 minutes: an agent may think for long.
fn seconds() -> Histogram {
    Histogram::new([0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0])
}

impl Metrics {
    /// The metrics in Prometheus text format.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
