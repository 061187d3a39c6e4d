//! Upstream `openai`: a server of OpenAI chat completions; the model itself is the agent.
//!
//! Such a server is stateless, so every run sends the whole conversation. The client's tools are the model's tools; a
//! run that calls them ends with the calls pending, and the next run contains their results.

use std::sync::Arc;

use agentwire_core::format::openai::{
    self,
    input::{ModelConfig, RESERVED_MEMBERS, to_json_with},
};
use reqwest::{Method, Url};
use serde_json::{Map, Value};

use super::{
    decode::ExpectedFormat,
    http::{HttpRequest, HttpTarget},
};
use crate::agent::{Agent, BoxFuture, BuildError, EventSink, Request};
use crate::error::UpstreamError;

/// The `Accept` header: a stream, or the whole completion of a server that does not stream.
const ACCEPT: &str = "text/event-stream, application/json;q=0.9";

/// The path of the route on every such server.
const ROUTE: &str = "/chat/completions";

/// Options of the upstream `openai`.
#[derive(Clone, Debug, Default)]
pub struct OpenAiOptions {
    /// The URL of the API, such as `https://api.openai.com/v1`, or of its route `/chat/completions`.
    pub url: String,
    /// The model.
    pub model: String,
    /// A system message before every conversation.
    pub system: Option<String>,
    /// Sent as `authorization: Bearer …`, unless `headers` contains that header.
    pub api_key: Option<String>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// Additional members of every request body, such as `temperature`.
    pub body: Map<String, Value>,
    /// Options of the format `openai`, `key=value`.
    pub options: Vec<String>,
}

/// An agent that is a server of chat completions.
#[derive(Debug)]
pub struct OpenAi(Arc<OpenAiServer>);

#[derive(Debug)]
struct OpenAiServer {
    http: HttpTarget,
    url: Url,
    model: String,
    system: Option<String>,
    body: Map<String, Value>,
    format: ExpectedFormat,
}

impl OpenAi {
    /// An agent at a URL.
    ///
    /// # Errors
    /// When the URL, the model, the key, a header or an option is invalid.
    pub fn new(options: OpenAiOptions) -> Result<Self, BuildError> {
        let OpenAiOptions { url, model, system, api_key, mut headers, body, options } = options;
        if let Some(name) = body.keys().find(|name| RESERVED_MEMBERS.contains(&name.as_str())) {
            return Err(BuildError(format!("the member `{name}` of a request cannot be chosen")));
        }
        if model.is_empty() {
            return Err(BuildError("the model's name is empty".into()));
        }
        let has_own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        if let (Some(key), false) = (api_key, has_own) {
            headers.push(("authorization".into(), format!("Bearer {}", key.trim())));
        }
        let http = HttpTarget::new(&url, &headers)?;
        let url = route(http.url().clone());
        let format = ExpectedFormat::of(&openai::FORMAT, &options)?;
        Ok(Self(Arc::new(OpenAiServer { http, url, model, system, body, format })))
    }
}

/// The route below the URL of an API. A query is kept: Azure has its API version there.
fn route(mut url: Url) -> Url {
    let path = url.path().trim_end_matches('/');
    if !path.ends_with(ROUTE) {
        let path = format!("{path}{ROUTE}");
        url.set_path(&path);
    }
    url
}

impl Agent for OpenAi {
    fn enforces_stream_timeouts(&self) -> bool {
        true
    }

    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let OpenAiServer { http, url, model, system, body, format } = &*shared;
            let model = ModelConfig { name: model, system: system.as_deref() };
            let json = to_json_with(&request.input, model, body);
            let call = HttpRequest {
                method: Method::POST,
                url: url.clone(),
                accept: ACCEPT,
                json: Some(json),
                last_event_id: None,
            };
            http.run(&request, call, format, &sink).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_is_appended_to_the_api_url() {
        let routed = |url: &str| route(Url::parse(url).unwrap()).to_string();
        assert_eq!(routed("http://h/v1"), "http://h/v1/chat/completions");
        assert_eq!(routed("http://h/v1/"), "http://h/v1/chat/completions");
        assert_eq!(routed("http://h"), "http://h/chat/completions");
        assert_eq!(routed("http://h/v1/chat/completions/"), "http://h/v1/chat/completions/");
        assert_eq!(
            routed("http://h/openai/deployments/d?api-version=1"),
            "http://h/openai/deployments/d/chat/completions?api-version=1"
        );
    }
}
