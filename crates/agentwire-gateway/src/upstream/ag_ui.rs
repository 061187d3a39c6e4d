//! An agent that speaks AG-UI already: it gains what the gateway has, and the other protocols.
//!
//! A server that goes on after a person has answered a call may tell that call once more before it tells the result
//! (Agno does). Clients add what they hear to the call that they know, and would hold its arguments twice; so the call is
//! told once.

use agentwire_core::{event::Body, format::ag_ui};
use reqwest::Method;

use super::{
    decode::ExpectedFormat,
    http::{ACCEPT_EVENTS, Call, Http},
};
use crate::agent::{Agent, BoxFuture, BuildError, EventSink, Request, answered_calls};
use crate::error::UpstreamError;
use std::sync::Arc;

/// Enough that the two halves of a run after an answer seldom wait for each other.
const TOLD_ANEW_CAPACITY: usize = 64;

/// Where an AG-UI server is.
#[derive(Clone, Debug, Default)]
pub struct AgUiOptions {
    /// The URL to which runs are posted.
    pub url: String,
    /// Headers of every request, such as `authorization`.
    pub headers: Vec<(String, String)>,
}

/// An AG-UI server as an agent.
#[derive(Debug)]
pub struct AgUi(Arc<(Http, ExpectedFormat)>);

impl AgUi {
    /// An agent at a URL.
    ///
    /// # Errors
    /// When the URL or a header is none.
    pub fn new(options: AgUiOptions) -> Result<Self, BuildError> {
        let http = Http::new(&options.url, &options.headers)?;
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
            let (http, language) = &*shared;
            let call = Call {
                method: Method::POST,
                url: http.url().clone(),
                accept: ACCEPT_EVENTS,
                json: Some(ag_ui::input::to_json(&request.input)),
                last_event_id: None,
            };
            let answered: Vec<_> = answered_calls(&request.input.messages).cloned().collect();
            if answered.is_empty() {
                return http.run(&request, call, language, &sink).await;
            }
            let (told, heard) = EventSink::new(TOLD_ANEW_CAPACITY);
            // Each half holds its own end of the channel, so that none waits for one that is over.
            let run = async {
                let told = told;
                http.run(&request, call, language, &told).await
            };
            let pass = async {
                let mut heard = heard;
                while let Some(event) = heard.recv().await {
                    let call = match &event.body {
                        Body::ToolStart { call, .. }
                        | Body::ToolArgs { call, .. }
                        | Body::ToolEnd { call, .. } => Some(call),
                        _ => None,
                    };
                    if !call.is_some_and(|call| answered.contains(call)) {
                        sink.send(event).await?;
                    }
                }
                Ok(())
            };
            let (run, passed) = tokio::join!(run, pass);
            passed.and(run)
        })
    }
}
