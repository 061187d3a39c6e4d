//! Upstream `ag-ui`: an agent that serves AG-UI itself.
//!
//! A server that continues after a person answered a tool call may repeat the call before its result (Agno does).
//! Clients append the repeated arguments to the call they have, so repeated calls are dropped.

use std::sync::Arc;

use agentwire_core::{event::Body, format::ag_ui};
use reqwest::Method;

use super::{
    decode::ExpectedFormat,
    http::{ACCEPT_EVENTS, HttpRequest, HttpTarget},
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
                accept: ACCEPT_EVENTS,
                json: Some(ag_ui::input::to_json(&request.input)),
                last_event_id: None,
            };
            run(http, &request, call, format, &sink).await
        })
    }
}

/// Sends a request and reads the stream, without calls whose results the request contains.
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
    let filter = async {
        let mut events = events;
        while let Some(event) = events.recv().await {
            let call = match &event.body {
                Body::ToolStart { call, .. } | Body::ToolArgs { call, .. } | Body::ToolEnd { call, .. } => {
                    Some(call)
                }
                _ => None,
            };
            if !call.is_some_and(|call| results.iter().any(|result| result.call == *call)) {
                sink.send(event).await?;
            }
        }
        Ok(())
    };
    let (run, filtered) = tokio::join!(run, filter);
    filtered.and(run)
}
