//! An agent that speaks AG-UI already: it gains what the gateway has, and the other protocols.

use agentwire_core::format::ag_ui;
use reqwest::Method;

use super::{
    Agent, BoxFuture, BuildError, Failure, Outlet, Request,
    http::{ACCEPT_EVENTS, Call, Http},
    stream::Language,
};
use std::sync::Arc;

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
pub struct AgUi(Arc<(Http, Language)>);

impl AgUi {
    /// An agent at a URL.
    ///
    /// # Errors
    /// When the URL or a header is none.
    pub fn new(options: AgUiOptions) -> Result<Self, BuildError> {
        let http = Http::new(&options.url, &options.headers)?;
        Ok(Self(Arc::new((http, Language::of(&ag_ui::FORMAT, &[])?))))
    }
}

impl Agent for AgUi {
    fn run(&self, request: Request, outlet: Outlet) -> BoxFuture<'static, Result<(), Failure>> {
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
            http.run(&request, call, language, &outlet).await
        })
    }
}
