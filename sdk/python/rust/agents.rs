//! Agents and identity functions in Python.

use std::{sync::Arc, time::Duration};

use agentwire_core::format::ag_ui;
use agentwire_gateway::{
    ApiError, UpstreamError, UpstreamErrorKind,
    agent::{Agent, BoxFuture},
    auth::{Caller, Identified, Identify, IdentityRequest},
    codes,
    upstream::{
        Adk, AdkOptions, LangGraph, LangGraphOptions, Local, LocalCall, LocalResponse, LocalStream, stream_fn,
    },
};
use axum::http::StatusCode;
use bytes::BytesMut;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use crate::calls::{CallError, CallStream, Calls, about, is_served};

/// The longest head of a response of a local server.
const MAX_HEAD: usize = 64 << 10;

/// Builds the agent `name` as Python describes it.
pub(crate) fn build(calls: &Arc<Calls>, name: &str, about: &Value) -> Result<Arc<dyn Agent>, String> {
    let text = |key: &str| about[key].as_str().unwrap_or_default().to_owned();
    let list = |key: &str| -> Vec<String> {
        about[key]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it.as_str().map(ToOwned::to_owned))
            .collect()
    };
    let options = list("options");
    let local: Arc<dyn Local> = Arc::new(PythonServer { calls: calls.clone(), name: name.into() });
    let agent: Arc<dyn Agent> = match &*text("kind") {
        "langgraph" => {
            let options = LangGraphOptions {
                local: Some(local),
                graph: name.to_owned(),
                state_keys: list("state_keys"),
                options,
                ..LangGraphOptions::default()
            };
            Arc::new(LangGraph::new(options).map_err(|error| error.to_string())?)
        }
        "adk" => {
            let options =
                AdkOptions { local: Some(local), app: text("app"), options, ..AdkOptions::default() };
            Arc::new(Adk::new(options).map_err(|error| error.to_string())?)
        }
        _ => {
            let (calls, name) = (calls.clone(), name.to_owned());
            let stream = move |request: agentwire_gateway::agent::Request| -> LocalStream {
                let mut payload = crate::calls::about(&request);
                payload["input"] = ag_ui::input::to_json(&request.input).into();
                let stream = calls.call(&name, "run", payload.to_string(), request.context.as_ref());
                Box::pin(stream.map_err(CallError::of_agent))
            };
            Arc::new(stream_fn(&text("format"), &options, stream).map_err(|error| error.to_string())?)
        }
    };
    Ok(agent)
}

/// The part of a LangGraph or ADK server that an upstream uses, in Python.
#[derive(Debug)]
struct PythonServer {
    calls: Arc<Calls>,
    name: Box<str>,
}

impl Local for PythonServer {
    fn send(&self, call: LocalCall) -> BoxFuture<'static, Result<LocalResponse, UpstreamError>> {
        let LocalCall { method, path, json, request } = call;
        let mut payload = about(&request);
        payload["method"] = method.into();
        payload["path"] = path.into();
        payload["body"] = json.into();
        payload["input"] = ag_ui::input::to_json(&request.input).into();
        let stream = self.calls.call(&self.name, "http", payload.to_string(), request.context.as_ref());
        Box::pin(respond(stream))
    }
}

/// Reads the head of a response, which is its first line.
async fn respond(mut stream: CallStream) -> Result<LocalResponse, UpstreamError> {
    let mut start = BytesMut::new();
    let at = loop {
        if let Some(at) = start.iter().position(|byte| *byte == b'\n') {
            break at;
        }
        match stream.next().await {
            Some(Ok(bytes)) if start.len() < MAX_HEAD => start.extend_from_slice(&bytes),
            Some(Err(error)) => return Err(error.of_agent()),
            _ => return Err(UpstreamErrorKind::Internal("the agent gave no response".into()).into()),
        }
    };
    let head: Value = serde_json::from_slice(&start.split_to(at + 1)).unwrap_or_default();
    let rest = (!start.is_empty()).then(|| Ok(start.freeze()));
    let body = stream::iter(rest).chain(stream.map_err(CallError::of_agent));
    let headers = head["headers"].as_object().into_iter().flatten();
    let headers =
        headers.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
    let status = head["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(500);
    Ok(LocalResponse { status, headers, body: Box::pin(body) })
}

/// The identity function of a gateway or an agent.
pub(crate) struct PythonIdentity {
    pub(crate) calls: Arc<Calls>,
    /// The agent; empty for that of the gateway.
    pub(crate) target: Box<str>,
    pub(crate) timeout: Duration,
}

impl Identify for PythonIdentity {
    fn identify<'i>(&'i self, request: IdentityRequest<'i>) -> Identified<'i> {
        Box::pin(async move {
            let mut payload = json!({
                "agent": request.agent,
                "part": request.part,
                "params": request.params.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect::<serde_json::Map<_, _>>(),
            });
            let context = request.parts.extensions.get();
            if context.is_some_and(is_served) {
                // Every byte as one character, so that any body is text.
                let body: String = request.body.iter().copied().map(char::from).collect();
                payload["body"] = body.into();
            }
            let asked = self.calls.ask(&self.target, "identity", payload.to_string(), context);
            let failed = || {
                ApiError::new(codes::HOOK_FAILED, "the identity of the request could not be found")
                    .with_status(StatusCode::INTERNAL_SERVER_ERROR)
            };
            let answer = match tokio::time::timeout(self.timeout, asked).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => return Err(refusal(error, failed)),
                Err(_) => {
                    tracing::error!(timeout = ?self.timeout, "the identity function took too long");
                    return Err(failed());
                }
            };
            let answer: Value = serde_json::from_slice(&answer).map_err(|_| failed())?;
            let (Some(tenant), Some(user)) = (answer["tenant"].as_str(), answer["user"].as_str()) else {
                return Err(failed());
            };
            let caller = Caller::new(tenant, user);
            Ok(match answer["thread"].as_str() {
                Some(thread) => caller.in_thread(thread),
                None => caller,
            })
        })
    }
}

/// The response to a request that Python refuses; `failed` for any other exception.
fn refusal(error: CallError, failed: impl Fn() -> ApiError) -> ApiError {
    let Some(code) = &error.code else {
        tracing::error!(detail = error.detail, "the identity function failed");
        return failed();
    };
    let refused = ApiError::new(static_code(code), error.message);
    let refused = match error.retry_after {
        Some(seconds) => refused.retry_after(seconds),
        None => refused,
    };
    // A refusal is an error, also if its status is not.
    let status = error.status.and_then(|status| StatusCode::from_u16(status).ok());
    match status.filter(|status| status.is_client_error() || status.is_server_error()) {
        Some(status) => refused.with_status(status),
        None if codes::find(code).is_some_and(|code| code.status.is_some()) => refused,
        None => refused.with_status(StatusCode::FORBIDDEN),
    }
}

/// A code that lives as long as the process. Codes of programs are few; beyond a number they are all the same.
fn static_code(code: &str) -> &'static str {
    use std::sync::{Mutex, PoisonError};
    static KNOWN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    const MAX: usize = 1000;
    if let Some(known) = codes::find(code) {
        return known.name;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.iter().find(|known| **known == code) {
        return known;
    }
    let is_plain = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if known.len() >= MAX || !is_plain || code.is_empty() {
        return codes::HOOK_REFUSED;
    }
    let leaked: &'static str = Box::leak(code.into());
    known.push(leaked);
    leaked
}
