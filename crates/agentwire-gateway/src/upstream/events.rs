//! Upstream `events`: any HTTP route that responds with a stream of a known format, such as LangServe's
//! `/stream_events`, a FastAPI route that yields `astream_events` lines, or another gateway.

use std::sync::Arc;

use agentwire_core::format::ag_ui;
use reqwest::{Method, Url};
use serde_json::Value;

use super::{
    decode::ExpectedFormat,
    http::{HttpRequest, HttpTarget},
    template::{self, TemplateValues},
    thread_names::sent_input,
};
use crate::agent::{Agent, BoxFuture, BuildError, EventSink, Request};
use crate::error::{UpstreamError, UpstreamErrorKind as Kind};

const ACCEPT: &str = "text/event-stream, application/x-ndjson;q=0.9, application/json;q=0.8, */*;q=0.1";

/// Options of the upstream `events`.
#[derive(Clone, Debug, Default)]
pub struct EventsOptions {
    /// The URL; `{{…}}` placeholders are filled from the run input.
    pub url: String,
    /// The method; `POST` if absent.
    pub method: Option<String>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// The body: JSON whose strings may contain `{{…}}` placeholders. The AG-UI request if absent, none with `GET`.
    pub body: Option<Value>,
    /// The format of the response; detected if absent.
    pub format: Option<String>,
    /// Options of the format, `key=value`.
    pub options: Vec<String>,
}

/// An agent that is an HTTP route.
#[derive(Debug)]
pub struct Events(Arc<EventsRoute>);

#[derive(Debug)]
struct EventsRoute {
    http: HttpTarget,
    method: Method,
    url: String,
    body: Option<Value>,
    format: ExpectedFormat,
}

impl Events {
    /// An agent at a route.
    ///
    /// # Errors
    /// When the URL, the method, a header, the template, the format or an option is invalid.
    pub fn new(options: EventsOptions) -> Result<Self, BuildError> {
        let EventsOptions { url, method, headers, body, format, options } = options;
        template::check_text(&url)?;
        let server = url.split_once("://").map_or(&*url, |(_, rest)| rest).split(['/', '?', '#']).next();
        if server.is_some_and(|server| server.contains("{{")) {
            // A client fills the placeholders: it must not choose where the gateway sends its requests.
            return Err(BuildError("a placeholder cannot be in the scheme, host or port of the URL".into()));
        }
        body.as_ref().map_or(Ok(()), template::check)?;
        let name = method.as_deref().unwrap_or("POST").to_ascii_uppercase();
        if !matches!(&*name, "GET" | "POST" | "PUT" | "PATCH") {
            return Err(BuildError(format!(
                "method `{name}` cannot start a run (allowed: GET, POST, PUT, PATCH)"
            )));
        }
        let method = Method::from_bytes(name.as_bytes()).expect("one of those above");
        if method == Method::GET && body.is_some() {
            return Err(BuildError("a GET request has no body: put `{{…}}` into the URL".into()));
        }
        Ok(Self(Arc::new(EventsRoute {
            http: HttpTarget::new(&url, &headers)?,
            method,
            url,
            body,
            format: ExpectedFormat::named(format.as_deref(), &options)?,
        })))
    }
}

impl Agent for Events {
    fn enforces_stream_timeouts(&self) -> bool {
        true
    }

    fn speaks_hai(&self) -> bool {
        self.0.format.is_hai()
    }

    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let EventsRoute { http, method, url, body, format } = &*shared;
            let has_placeholders = body.is_some() || url.contains("{{");
            let values = has_placeholders.then(|| TemplateValues::of(&sent_input(&request)));
            let filled = match &values {
                Some(values) => template::fill_url(url, values),
                None => Some(url.clone()),
            };
            let url = filled.ok_or("it has a segment `.` or `..`".to_owned());
            let url = url.and_then(|url| Url::parse(&url).map_err(|error| error.to_string()));
            let url = url.map_err(|detail| {
                let problem = "the URL of the agent cannot be made from this run";
                UpstreamError::from(Kind::Internal(problem.into())).with_detail(detail)
            })?;
            let json = match (body, &values) {
                _ if *method == Method::GET => None,
                (Some(template), Some(values)) => Some(template::fill(template, values).to_string()),
                _ => Some(ag_ui::input::to_json(&sent_input(&request))),
            };
            let call = HttpRequest { method: method.clone(), url, accept: ACCEPT, json, last_event_id: None };
            http.run(&request, call, format, &sink).await
        })
    }
}
