//! Upstream `hai`: an agent that serves HAI itself.
//!
//! Every run posts the whole conversation as HAI's own request. Answers go to the agent as tool messages: HAI has no other
//! way to ask a person than a call of a front-end tool.

use std::sync::Arc;

use agentwire_client::Protocol;
use agentwire_core::format::hai;
use reqwest::Method;

use super::{
    ag_ui,
    decode::ExpectedFormat,
    http::{HttpRequest, HttpTarget},
    thread_names::sent_input,
};
use crate::{
    agent::{Agent, BoxFuture, BuildError, EventSink, Request},
    error::UpstreamError,
};

/// Options of the upstream `hai`.
#[derive(Clone, Debug, Default)]
pub struct HaiOptions {
    /// The URL to which runs are posted, with its path: `/awp`, `/chat` or another.
    pub url: String,
    /// Headers of every request, such as `authorization`.
    pub headers: Vec<(String, String)>,
}

/// An agent that is a HAI server.
#[derive(Debug)]
pub struct Hai(Arc<(HttpTarget, ExpectedFormat)>);

impl Hai {
    /// An agent at a URL.
    ///
    /// # Errors
    /// When the URL or a header is invalid.
    pub fn new(options: HaiOptions) -> Result<Self, BuildError> {
        let http = HttpTarget::new(&options.url, &options.headers)?;
        Ok(Self(Arc::new((http, ExpectedFormat::of(&hai::FORMAT, &[])?))))
    }
}

impl Agent for Hai {
    fn enforces_stream_timeouts(&self) -> bool {
        true
    }

    fn speaks_hai(&self) -> bool {
        true
    }

    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let (http, format) = &*shared;
            let call = HttpRequest {
                method: Method::POST,
                url: http.url().clone(),
                accept: Protocol::Hai.accept(false),
                json: Some(Protocol::Hai.body(&sent_input(&request))),
                last_event_id: None,
            };
            ag_ui::run(http, &request, call, format, &sink).await
        })
    }
}
