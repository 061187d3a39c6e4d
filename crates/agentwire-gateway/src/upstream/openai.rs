//! Any server that speaks OpenAI's chat completions: the model itself is the agent.
//!
//! Such a server remembers nothing, so every run sends the whole conversation. Tools of the user interface are the
//! model's tools; a run that calls them ends with the calls pending, and the next one brings their results.

use std::sync::Arc;

use agentwire_core::format::openai::{
    self,
    input::{ModelConfig, RESERVED_MEMBERS, to_json_with},
};
use reqwest::{Method, Url};
use serde_json::{Map, Value};

use super::{
    decode::ExpectedFormat,
    http::{Call, Http},
};
use crate::agent::{Agent, BoxFuture, BuildError, EventSink, Request};
use crate::error::UpstreamError;

/// The stream, or a whole answer of a server that does not stream.
const ACCEPT: &str = "text/event-stream, application/json;q=0.9";

/// What every such server calls the route.
const ROUTE: &str = "/chat/completions";

/// Where a server is, and what to ask it for.
#[derive(Clone, Debug, Default)]
pub struct OpenAiOptions {
    /// The URL of the API, such as `https://api.openai.com/v1`, or of its route `/chat/completions`.
    pub url: String,
    /// The model.
    pub model: String,
    /// A system message before every conversation.
    pub system: Option<String>,
    /// Sent as `authorization: Bearer …`, unless `headers` has that header.
    pub api_key: Option<String>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// Members of every request, such as `temperature`.
    pub body: Map<String, Value>,
    /// Options of the format `openai`, `key=value`.
    pub options: Vec<String>,
}

/// A server of chat completions as an agent.
#[derive(Debug)]
pub struct OpenAi(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    http: Http,
    url: Url,
    model: String,
    system: Option<String>,
    body: Map<String, Value>,
    language: ExpectedFormat,
}

impl OpenAi {
    /// An agent at a URL.
    ///
    /// # Errors
    /// When the URL, the model, the key, a header or an option is none.
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
        let http = Http::new(&url, &headers)?;
        let url = route(http.url().clone());
        let language = ExpectedFormat::of(&openai::FORMAT, &options)?;
        Ok(Self(Arc::new(Shared { http, url, model, system, body, language })))
    }
}

/// The route below the URL of an API. A query stays: Azure has its version there.
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
            let Shared { http, url, model, system, body, language } = &*shared;
            let model = ModelConfig { name: model, system: system.as_deref() };
            let json = to_json_with(&request.input, model, body);
            let call = Call {
                method: Method::POST,
                url: url.clone(),
                accept: ACCEPT,
                json: Some(json),
                last_event_id: None,
            };
            http.run(&request, call, language, &sink).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_is_found_below_any_address() {
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
