//! Upstream `ag-ui`: an agent that serves AG-UI itself.
//!
//! A server that continues after a person answered a tool call may repeat the call before its result (Agno does).
//! Repeated calls are dropped ([`RepeatedCalls`]).
//!
//! `ag-ui-langgraph` reports interrupts by CUSTOM `on_interrupt` and expects the answers in
//! `forwardedProps.command.resume`; the reader marks such interrupts, and their answers are sent there.

use std::sync::Arc;

use agentwire_client::Protocol;
use agentwire_core::{
    event::{Body, Event, GivenResult, Message, ToolCall, ToolCallId},
    format::ag_ui,
};
use reqwest::Method;

use super::{
    decode::ExpectedFormat,
    http::{HttpRequest, HttpTarget},
    thread_names::sent_input,
};
use crate::{
    agent::{Agent, BoxFuture, BuildError, EventSink, Request},
    error::UpstreamError,
};

/// The capacity between the stream and the filter of repeated calls: they seldom wait for each other.
const FILTER_CAPACITY: usize = 64;

/// Options of the upstream `ag-ui`.
#[derive(Clone, Debug, Default)]
pub struct AgUiOptions {
    /// The URL to which runs are posted.
    pub url: String,
    /// Headers of every request, such as `authorization`.
    pub headers: Vec<(String, String)>,
}

/// An agent that is an AG-UI server.
#[derive(Debug)]
pub struct AgUi(Arc<(HttpTarget, ExpectedFormat)>);

impl AgUi {
    /// An agent at a URL.
    ///
    /// # Errors
    /// When the URL or a header is invalid.
    pub fn new(options: AgUiOptions) -> Result<Self, BuildError> {
        let http = HttpTarget::new(&options.url, &options.headers)?;
        Ok(Self(Arc::new((http, ExpectedFormat::of(&ag_ui::FORMAT, &[])?))))
    }
}

impl Agent for AgUi {
    fn enforces_stream_timeouts(&self) -> bool {
        true
    }

    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let (http, format) = &*shared;
            let call = HttpRequest {
                method: Method::POST,
                url: http.url().clone(),
                accept: Protocol::AgUi.accept(false),
                json: Some(Protocol::AgUi.body(&sent_input(&request))),
                last_event_id: None,
            };
            run(http, &request, call, format, &sink).await
        })
    }
}

/// Sends a request and reads the stream, without the calls that it repeats.
pub(super) async fn run(
    http: &HttpTarget,
    request: &Request,
    call: HttpRequest,
    format: &ExpectedFormat,
    sink: &EventSink,
) -> Result<(), UpstreamError> {
    let results = ag_ui::input::trailing_results(&request.input.messages);
    if results.is_empty() {
        return http.run(request, call, format, sink).await;
    }
    let (unfiltered, events) = EventSink::new(FILTER_CAPACITY);
    // Each half owns its end of the channel, so that neither waits for one that has ended.
    let run = async {
        let unfiltered = unfiltered;
        http.run(request, call, format, &unfiltered).await
    };
    let mut repeated = RepeatedCalls::new(&request.input.messages, results);
    let filter = async {
        let (mut events, mut passed) = (events, Vec::new());
        while let Some(event) = events.recv().await {
            repeated.push(event, &mut passed);
            sink.send_all(&mut passed).await?;
        }
        repeated.release_all(&mut passed);
        Ok(sink.send_all(&mut passed).await?)
    };
    let (run, filtered) = tokio::join!(run, filter);
    filtered.and(run)
}

/// Drops calls that a server repeats because the request has their results. A repeated call has the same name and arguments,
/// and its result follows in the same run. Any other call with the id is a new one: some servers give all calls one id.
struct RepeatedCalls {
    /// The calls with a result in the request, as far as the request has them.
    answered: Vec<(ToolCallId, Option<ToolCall>)>,
    held: Vec<HeldCall>,
}

/// A call that may be a repetition.
struct HeldCall {
    id: ToolCallId,
    arguments: String,
    events: Vec<Event>,
}

impl RepeatedCalls {
    fn new(messages: &[Message], results: Vec<GivenResult>) -> Self {
        let call_of = |result: GivenResult| {
            let calls = messages.iter().flat_map(|message| message.tool_calls());
            (result.call.clone(), calls.rev().find(|call| call.id == result.call).cloned())
        };
        Self { answered: results.into_iter().map(call_of).collect(), held: Vec::new() }
    }

    fn push(&mut self, event: Event, passed: &mut Vec<Event>) {
        match &event.body {
            Body::ToolStart { call, name, .. } => {
                let answered = self.answered.iter().find(|(id, _)| id == call);
                let may_repeat =
                    answered.is_some_and(|(_, known)| known.as_ref().is_none_or(|known| known.name == *name));
                if may_repeat {
                    let id = call.clone();
                    self.held.push(HeldCall { id, arguments: String::new(), events: vec![event] });
                    return;
                }
            }
            Body::ToolArgs { call, .. } | Body::ToolEnd { call } => {
                if let Some(index) = self.held.iter().position(|held| held.id == *call) {
                    let held = &mut self.held[index];
                    if let Body::ToolArgs { delta, .. } = &event.body {
                        held.arguments.push_str(delta);
                    }
                    let is_complete = matches!(event.body, Body::ToolEnd { .. });
                    held.events.push(event);
                    if is_complete && !self.has_same_arguments(index) {
                        passed.append(&mut self.held.remove(index).events);
                    }
                    return;
                }
            }
            Body::ToolResult(result) => self.held.retain(|held| held.id != result.call),
            _ if event.is_terminal() => self.release_all(passed),
            _ => {}
        }
        passed.push(event);
    }

    fn has_same_arguments(&self, index: usize) -> bool {
        let HeldCall { id, arguments, .. } = &self.held[index];
        let known = self.answered.iter().find(|(answered, _)| answered == id);
        let Some((_, Some(known))) = known else { return true };
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        *known.arguments == **arguments
            || value(&known.arguments).is_some_and(|it| Some(it) == value(arguments))
    }

    /// Passes on the calls without a result: they are new.
    fn release_all(&mut self, passed: &mut Vec<Event>) {
        self.held.drain(..).for_each(|mut held| passed.append(&mut held.events));
    }
}
