//! The spans of one run: `invoke_agent`, and below it the calls of tools and the waits for people. The names are those of
//! the semantic conventions for generative AI.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use agentwire_core::{
    event::{Body, Event, Outcome, RunInput, ToolCallId, Usage},
    format::ag_ui,
    json::{Json, Object},
};
use agentwire_store::{Owner, Pending, RunStatus};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    agent::Request,
    gateway::Gateway,
    trace::{Kind, Span, SpanContext, TraceState, Tracer, Value, nanoseconds, now},
};

/// The header, and the stored text of a run input, with the place of the run's span.
pub(super) const TRACEPARENT: &str = "traceparent";

/// Open calls of one run that get a span.
const MAX_CALLS: usize = 256;

/// Bytes of a text in a span.
const MAX_TEXT: usize = 8 << 10;

/// The trace of a run. It is exported when the run ends; that of a request that joined a run is dropped.
pub(crate) struct RunTrace {
    tracer: Arc<Tracer>,
    context: SpanContext,
    parent: Option<[u8; 8]>,
    /// That of the client; all spans of the run have it.
    state: Option<TraceState>,
    links: Vec<SpanContext>,
    /// The waits for people that this run ends, each a kind and the start in milliseconds since the epoch.
    waits: Vec<(String, u64)>,
    started: (u64, Instant),
    first_event: Option<Duration>,
    calls: HashMap<ToolCallId, Call>,
    ended: Vec<Span>,
    usage: Vec<Usage>,
    outcome: Option<Outcome>,
    /// The text of the answer, if texts are configured.
    answer: String,
}

/// A call without a result so far.
struct Call {
    context: SpanContext,
    name: Box<str>,
    start: u64,
    arguments: String,
}

/// The facts of a run that its span has.
pub(super) struct RunFacts<'a> {
    pub(super) agent: &'a str,
    pub(super) input: &'a RunInput,
    pub(super) status: RunStatus,
    /// The code of a failure.
    pub(super) cause: Option<&'a str>,
    pub(super) events: u64,
}

impl RunTrace {
    /// The trace of a run that a request starts, with the span of the request as its parent.
    pub(crate) fn new(
        tracer: Arc<Tracer>,
        parent: Option<SpanContext>,
        state: Option<TraceState>,
    ) -> Box<Self> {
        Box::new(Self {
            state,
            context: tracer.begin(parent),
            parent: parent.map(|parent| parent.span),
            tracer,
            links: Vec::new(),
            waits: Vec::new(),
            started: (now(), Instant::now()),
            first_event: None,
            calls: HashMap::new(),
            ended: Vec::new(),
            usage: Vec::new(),
            outcome: None,
            answer: String::new(),
        })
    }

    /// The place of the run's span, as a `traceparent`.
    pub(super) fn to_traceparent(&self) -> String {
        self.context.to_traceparent()
    }

    /// Continues the trace in the headers for the agent's server.
    pub(crate) fn set_header(&self, headers: &mut Vec<(String, String)>) {
        headers.retain(|(name, _)| name != TRACEPARENT);
        headers.push((TRACEPARENT.to_owned(), self.to_traceparent()));
    }

    /// The metadata of RUN_STARTED: feedback on the run can name its span.
    pub(super) fn metadata(&self) -> Object {
        let text = |text: String| Json::from(&json!(text));
        Object::from_entries([
            ("traceId", text(self.context.trace_id())),
            ("spanId", text(self.context.span_id())),
        ])
    }

    /// Notes the questions that the run answers, and the runs that asked them.
    pub(super) async fn note_answers(
        &mut self,
        gateway: &Gateway,
        owner: &Owner,
        answered: impl Iterator<Item = &Pending>,
    ) {
        let mut runs = BTreeSet::new();
        for item in answered.take(MAX_CALLS) {
            self.waits.push((item.kind.to_string(), item.created.0));
            runs.insert(item.run.clone());
        }
        for run in runs {
            self.links.extend(gateway.trace_of_run(owner, &run).await);
        }
    }

    /// Notes the first event of the agent.
    pub(super) fn note_first_event(&mut self, after: Duration) {
        self.first_event = Some(after);
    }

    /// Notes an event of the log.
    pub(super) fn note(&mut self, event: &Event) {
        match &event.body {
            Body::ToolStart { call, name, .. } if self.calls.len() < MAX_CALLS => {
                let context = self.tracer.begin(Some(self.context));
                let opened = Call { context, name: name.clone(), start: now(), arguments: String::new() };
                self.calls.insert(call.clone(), opened);
            }
            Body::ToolArgs { call, delta } if self.tracer.has_content() => {
                if let Some(call) = self.calls.get_mut(call) {
                    append(&mut call.arguments, delta);
                }
            }
            Body::ToolResult(result) => {
                if let Some(call) = self.calls.remove(&result.call) {
                    let mut span = self.call_span(&result.call, call);
                    span.is_error = result.error.is_some();
                    if span.is_error {
                        span.attributes.push(("error.type", "tool_error".into()));
                    }
                    if self.tracer.has_content() {
                        let mut text = String::new();
                        append(&mut text, &result.content.text());
                        span.attributes.push(("gen_ai.tool.call.result", Value::Text(text)));
                    }
                    self.keep(span);
                }
            }
            Body::TextDelta { delta, .. } if self.tracer.has_content() => append(&mut self.answer, delta),
            Body::RunFinished(finished) => {
                self.usage.clone_from(&finished.usage);
                self.outcome.clone_from(&finished.outcome);
            }
            Body::RunError(error) => self.usage.clone_from(&error.usage),
            _ => {}
        }
    }

    /// Keeps an ended span until the run ends, so that a run has all its spans or none.
    fn keep(&mut self, span: Span) {
        if self.ended.len() < MAX_CALLS {
            self.ended.push(span);
        }
    }

    fn call_span(&self, id: &ToolCallId, call: Call) -> Span {
        let mut attributes = vec![
            ("gen_ai.operation.name", "execute_tool".into()),
            ("gen_ai.tool.name", (&*call.name).into()),
            ("gen_ai.tool.call.id", id.as_str().into()),
        ];
        if !call.arguments.is_empty() {
            attributes.push(("gen_ai.tool.call.arguments", Value::Text(call.arguments)));
        }
        Span {
            context: call.context,
            state: self.state.clone(),
            parent: Some(self.context.span),
            name: format!("execute_tool {}", call.name),
            kind: Kind::Internal,
            start: call.start,
            end: now(),
            attributes,
            links: Vec::new(),
            is_error: false,
        }
    }

    /// Ends and exports the spans of the run.
    pub(super) fn finish(mut self: Box<Self>, facts: &RunFacts<'_>) {
        if !self.context.is_sampled {
            return;
        }
        let mut open: Vec<_> = std::mem::take(&mut self.calls).into_iter().collect();
        open.sort_by_key(|(_, call)| call.start);
        for (id, call) in open {
            // The front end runs it, or the agent never reported its result.
            let mut span = self.call_span(&id, call);
            span.attributes.push(("agentwire.tool.outcome", "open".into()));
            self.keep(span);
        }
        let mut waits = Vec::new();
        for (kind, since) in std::mem::take(&mut self.waits) {
            waits.push(Span {
                context: self.tracer.begin(Some(self.context)),
                state: self.state.clone(),
                parent: Some(self.context.span),
                name: format!("human_wait {kind}"),
                kind: Kind::Internal,
                start: since.saturating_mul(1_000_000),
                end: self.started.0,
                attributes: vec![("agentwire.pending.kind", kind.as_str().into())],
                links: self.links.clone(),
                is_error: false,
            });
        }
        let span = self.run_span(facts);
        for span in waits.into_iter().chain(self.ended).chain([span]) {
            self.tracer.export(span);
        }
    }

    fn run_span(&self, facts: &RunFacts<'_>) -> Span {
        let mut attributes: Vec<(&'static str, Value)> = vec![
            ("gen_ai.operation.name", "invoke_agent".into()),
            ("gen_ai.agent.name", facts.agent.into()),
            ("gen_ai.conversation.id", facts.input.thread.as_str().into()),
            ("agentwire.run.id", facts.input.run.as_str().into()),
            ("agentwire.run.status", facts.status.as_str().into()),
            ("agentwire.run.events", facts.events.into()),
            (
                "gen_ai.response.finish_reasons",
                Value::Texts(vec![self.finish_reason(facts.status).to_owned()]),
            ),
        ];
        let first = |of: fn(&Usage) -> Option<&Box<str>>| self.usage.iter().find_map(of);
        let provider = first(|usage| usage.provider.as_ref()).map_or("agentwire", |name| name);
        attributes.push(("gen_ai.provider.name", provider.into()));
        if let Some(model) = first(|usage| usage.model.as_ref()) {
            attributes.push(("gen_ai.response.model", (&**model).into()));
        }
        let sum = |of: fn(&Usage) -> Option<u64>| {
            let counts: Vec<u64> = self.usage.iter().filter_map(of).collect();
            (!counts.is_empty()).then(|| counts.iter().sum::<u64>())
        };
        for (name, count) in [
            ("gen_ai.usage.input_tokens", sum(|usage| usage.input)),
            ("gen_ai.usage.output_tokens", sum(|usage| usage.output)),
            ("gen_ai.usage.cache_read.input_tokens", sum(|usage| usage.cached_input)),
            ("gen_ai.usage.cache_creation.input_tokens", sum(|usage| usage.cache_write_input)),
        ] {
            attributes.extend(count.map(|count| (name, count.into())));
        }
        if let Some(after) = self.first_event {
            attributes.push(("gen_ai.response.time_to_first_chunk", Value::Float(after.as_secs_f64())));
        }
        let is_error = facts.status == RunStatus::Failed;
        if is_error {
            attributes.push(("error.type", facts.cause.unwrap_or("_OTHER").into()));
        }
        if self.tracer.has_content() {
            let mut asked = String::new();
            append(&mut asked, &Request::new(facts.input.clone()).user_text());
            let message = |role, text: &str| {
                let parts = json!([{ "type": "text", "content": text }]);
                Value::Text(json!([{ "role": role, "parts": parts }]).to_string())
            };
            attributes.push(("gen_ai.input.messages", message("user", &asked)));
            attributes.push(("gen_ai.output.messages", message("assistant", &self.answer)));
        }
        let (start, began) = self.started;
        Span {
            context: self.context,
            state: self.state.clone(),
            parent: self.parent,
            name: format!("invoke_agent {}", facts.agent),
            kind: Kind::Client,
            start,
            end: start.saturating_add(nanoseconds(began.elapsed())),
            attributes,
            links: self.links.clone(),
            is_error,
        }
    }

    fn finish_reason(&self, status: RunStatus) -> &'static str {
        match (status, &self.outcome) {
            (RunStatus::Failed, _) => "error",
            (RunStatus::Stopped, _) => "cancelled",
            (_, Some(Outcome::Interrupt { .. })) => "interrupt",
            (RunStatus::Waiting, _) => "tool_calls",
            _ => "stop",
        }
    }
}

impl Gateway {
    /// The place of the span of an earlier run, if that was traced.
    pub(super) async fn trace_of_run(
        &self,
        owner: &Owner,
        run: &agentwire_core::event::RunId,
    ) -> Option<SpanContext> {
        let run = self.store().run(owner, run).await.ok()?;
        let (input, _) = self.stored_input(owner, &run).await.ok()?;
        SpanContext::parse(&ag_ui::input::stored_text(&input, TRACEPARENT)?)
    }
}

/// Appends as much of a text as a span may have.
fn append(text: &mut String, more: &str) {
    let room = MAX_TEXT.saturating_sub(text.len());
    let end = (0..=room.min(more.len())).rev().find(|at| more.is_char_boundary(*at)).unwrap_or(0);
    text.push_str(&more[..end]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let mut text = "x".repeat(MAX_TEXT - 2);
        append(&mut text, "aéb");
        assert_eq!(text.len(), MAX_TEXT - 1);
        append(&mut text, "é");
        append(&mut text, "z");
        assert_eq!(text.len(), MAX_TEXT);
        assert!(text.ends_with("az"));
    }
}
