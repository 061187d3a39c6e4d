//! Upstreams `openai`, `openai-responses` and `anthropic`: a model's API; the model itself is the agent.
//!
//! Such a server is stateless, so every run sends the whole conversation. The client's tools are the model's tools; a
//! run that calls them ends with the calls pending, and the next run contains their results.

use std::sync::Arc;

use agentwire_core::{
    event::RunInput,
    format::{
        Format, anthropic,
        openai::{self, input::ModelConfig},
        openai_responses,
    },
};
use reqwest::{Method, Url};
use serde_json::{Map, Value};

use super::{
    decode::ExpectedFormat,
    http::{HttpRequest, HttpTarget},
};
use crate::agent::{Agent, BoxFuture, BuildError, EventSink, Request};
use crate::error::UpstreamError;

/// The `Accept` header: a stream, or the whole response of a server that does not stream.
const ACCEPT: &str = "text/event-stream, application/json;q=0.9";

/// The version of Anthropic's API, unless a configured header has another. Requests are valid in 2023-06-01 too, which
/// some compatible servers expect.
const ANTHROPIC_VERSION: &str = "2026-10-21";

/// The API of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelApi {
    /// OpenAI's chat completions, which many servers have.
    #[default]
    ChatCompletions,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
}

impl ModelApi {
    /// The format of its streams, whose name is the kind of the upstream.
    #[must_use]
    pub fn format(self) -> &'static Format {
        match self {
            Self::ChatCompletions => &openai::FORMAT,
            Self::Responses => &openai_responses::FORMAT,
            Self::Messages => &anthropic::FORMAT,
        }
    }

    /// Members of a request that options cannot choose.
    #[must_use]
    pub fn reserved_members(self) -> &'static [&'static str] {
        match self {
            Self::ChatCompletions => openai::input::RESERVED_MEMBERS,
            Self::Responses => openai_responses::input::RESERVED_MEMBERS,
            Self::Messages => anthropic::input::RESERVED_MEMBERS,
        }
    }

    /// The path of the route on every such server.
    fn route(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/chat/completions",
            Self::Responses => "/responses",
            Self::Messages => "/messages",
        }
    }

    fn body(self, input: &RunInput, model: ModelConfig<'_>, options: &Map<String, Value>) -> String {
        match self {
            Self::ChatCompletions => openai::input::to_json_with(input, model, options),
            Self::Responses => openai_responses::input::to_json_with(input, model, options),
            Self::Messages => anthropic::input::to_json_with(input, model, options),
        }
    }

    /// Adds the headers that the API needs, unless they are configured.
    fn add_headers(self, api_key: Option<String>, headers: &mut Vec<(String, String)>) {
        let has = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let has_own_key = has("authorization") || self == Self::Messages && has("x-api-key");
        let has_version = has("anthropic-version");
        if let (Some(key), false) = (api_key, has_own_key) {
            headers.push(("authorization".into(), format!("Bearer {}", key.trim())));
        }
        if self == Self::Messages && !has_version {
            headers.push(("anthropic-version".into(), ANTHROPIC_VERSION.into()));
        }
    }
}

/// Options of the upstreams `openai`, `openai-responses` and `anthropic`.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// The API.
    pub api: ModelApi,
    /// The URL of the API, such as `https://api.openai.com/v1`, or of its route, such as `…/v1/chat/completions`.
    pub url: String,
    /// The model.
    pub model: String,
    /// A system message before every conversation.
    pub system: Option<String>,
    /// Sent as `authorization: Bearer …`, unless `headers` contains that header, or `x-api-key` for Messages.
    pub api_key: Option<String>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// Additional members of every request body, such as `temperature`.
    pub body: Map<String, Value>,
    /// Options of the format, `key=value`.
    pub options: Vec<String>,
}

/// An agent that is a model.
#[derive(Debug)]
pub struct Model(Arc<ModelServer>);

#[derive(Debug)]
struct ModelServer {
    api: ModelApi,
    http: HttpTarget,
    url: Url,
    model: String,
    system: Option<String>,
    body: Map<String, Value>,
    format: ExpectedFormat,
}

impl Model {
    /// An agent at a URL.
    ///
    /// # Errors
    /// When the URL, the model, the key, a header or an option is invalid.
    pub fn new(options: ModelOptions) -> Result<Self, BuildError> {
        let ModelOptions { api, url, model, system, api_key, mut headers, body, options } = options;
        if let Some(name) = body.keys().find(|name| api.reserved_members().contains(&name.as_str())) {
            return Err(BuildError(format!("the member `{name}` of a request cannot be chosen")));
        }
        if model.is_empty() {
            return Err(BuildError("the model's name is empty".into()));
        }
        api.add_headers(api_key, &mut headers);
        let http = HttpTarget::new(&url, &headers)?;
        let url = route(http.url().clone(), api.route());
        let format = ExpectedFormat::of(api.format(), &options)?;
        Ok(Self(Arc::new(ModelServer { api, http, url, model, system, body, format })))
    }
}

/// The route below the URL of an API. A query is kept: Azure has its API version there.
fn route(mut url: Url, route: &str) -> Url {
    let path = url.path().trim_end_matches('/');
    if !path.ends_with(route) {
        let path = format!("{path}{route}");
        url.set_path(&path);
    }
    url
}

impl Agent for Model {
    fn enforces_stream_timeouts(&self) -> bool {
        true
    }

    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let ModelServer { api, http, url, model, system, body, format } = &*shared;
            let model = ModelConfig { name: model, system: system.as_deref() };
            let call = HttpRequest {
                method: Method::POST,
                url: url.clone(),
                accept: ACCEPT,
                json: Some(api.body(&request.input, model, body)),
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
        let routed =
            |url: &str| route(Url::parse(url).unwrap(), ModelApi::ChatCompletions.route()).to_string();
        assert_eq!(routed("http://h/v1"), "http://h/v1/chat/completions");
        assert_eq!(routed("http://h/v1/"), "http://h/v1/chat/completions");
        assert_eq!(routed("http://h"), "http://h/chat/completions");
        assert_eq!(routed("http://h/v1/chat/completions/"), "http://h/v1/chat/completions/");
        assert_eq!(
            routed("http://h/openai/deployments/d?api-version=1"),
            "http://h/openai/deployments/d/chat/completions?api-version=1"
        );
    }

    #[test]
    fn configured_headers_have_precedence() {
        let of = |api: ModelApi, given: &[(&str, &str)]| {
            let mut headers: Vec<_> =
                given.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            api.add_headers(Some(" k\n".into()), &mut headers);
            headers
                .into_iter()
                .map(|(name, value): (String, String)| format!("{name}: {value}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(ModelApi::Responses, &[]), ["authorization: Bearer k"]);
        assert_eq!(of(ModelApi::Messages, &[]), ["authorization: Bearer k", "anthropic-version: 2026-10-21"]);
        let own = [("X-Api-Key", "own"), ("Anthropic-Version", "v")];
        assert_eq!(of(ModelApi::Messages, &own), ["X-Api-Key: own", "Anthropic-Version: v"]);
        assert_eq!(of(ModelApi::ChatCompletions, &[("Authorization", "x")]), ["Authorization: x"]);
    }
}
