//! The single-route transport: an envelope that names one of the other routes.

use std::{borrow::Cow, collections::HashMap};

use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    http::{Method, Uri, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::RawValue;
use tower::ServiceExt;

use super::{
    super::super::request::{check_content_type, payer, read_body},
    MultiRoute,
};
use crate::{codes, cpu_work, error::ApiError, gateway::Gateway};

/// The members of an envelope as they were sent, read one by one: clients get the name of a wrong one, not that of a type.
struct Members<'a>(HashMap<Cow<'a, str>, &'a RawValue>);

impl<'a> Members<'a> {
    fn parse(text: &'a str, name: &str) -> Result<Self, ApiError> {
        match text.trim_start().starts_with('{') {
            true => serde_json::from_str(text)
                .map(Self)
                .map_err(|error| invalid(format!("{name} is no JSON: {error}"))),
            false => Err(invalid(format!("{name} must be an object"))),
        }
    }

    /// A member that is neither absent nor `null`.
    fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.get(key).copied().filter(|value| value.get() != "null")
    }

    /// A text, if there is one.
    fn text(&self, key: &str) -> Result<Option<String>, ApiError> {
        let read = |value: &RawValue| serde_json::from_str(value.get());
        self.get(key).map(read).transpose().map_err(|_| invalid(format!("`{key}` must be a text")))
    }

    /// A text that is not blank.
    fn named(&self, key: &str) -> Result<String, ApiError> {
        let text = self.text(key)?.filter(|text| !text.trim().is_empty());
        text.ok_or_else(|| invalid(format!("missing or invalid parameter `{key}`")))
    }
}

/// The request that an envelope stands for.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    method: Method,
    /// Below `/copilotkit`, with the query.
    path: String,
    body: Bytes,
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(codes::BAD_REQUEST, message)
}

/// `POST /copilotkit`: passes the call on to its route, which checks its own scope.
pub(super) async fn dispatch(
    State(gateway): State<Gateway>,
    Extension(MultiRoute(routes)): Extension<MultiRoute>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    check_content_type(&parts.headers)?;
    let limits = &gateway.settings().limits;
    let sender = payer(&parts);
    let mut held = gateway.bytes().hold(sender.clone());
    let body = read_body(&parts.headers, body, limits.body, limits.request_timeout, &mut held).await?;
    let call = match body.len() > cpu_work::SHORT_TEXT {
        true => cpu_work::spawn(sender, move || parse(&body)).await?,
        false => parse(&body),
    }?;
    // The route takes the bytes of its body from the budget itself.
    drop(held);
    parts.method = call.method;
    parts.uri =
        Uri::try_from(format!("/copilotkit{}", call.path)).map_err(|_| invalid("`path` is no path"))?;
    parts.headers.remove(header::CONTENT_LENGTH);
    let request = Request::from_parts(parts, Body::from(call.body));
    Ok(routes.oneshot(request).await.into_response())
}

fn parse(body: &Bytes) -> Result<Call, ApiError> {
    let text = std::str::from_utf8(body).map_err(|_| invalid("the body is not UTF-8"))?;
    let envelope = Members::parse(text, "the body")?;
    let encoded = |value: &str| utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
    let inner = envelope.get("body").map(|raw| body.slice_ref(raw.get().as_bytes()));
    let params = Members::parse(envelope.get("params").map_or("{}", RawValue::get), "`params`")?;
    let method = envelope.text("method")?.ok_or_else(|| invalid("`method` is missing"))?;
    let post = |path: String, body: Option<Bytes>| {
        Ok(Call { method: Method::POST, path, body: body.unwrap_or_default() })
    };
    match &*method {
        "info" => Ok(Call { method: Method::GET, path: "/info".into(), body: Bytes::new() }),
        "agent/run" | "agent/connect" => {
            let agent = agent_segment(&params.named("agentId")?);
            post(format!("/agent/{agent}/{}", method.trim_start_matches("agent/")), inner)
        }
        "agent/stop" => {
            let agent = agent_segment(&params.named("agentId")?);
            let thread = encoded(&params.named("threadId")?);
            post(format!("/agent/{agent}/stop/{thread}"), inner)
        }
        "resource/request" => {
            let path = params.named("path")?;
            let http_method = params.named("httpMethod")?.to_uppercase();
            if !(path == "/threads" || path.starts_with("/threads/") || path.starts_with("/threads?")) {
                return Err(ApiError::new(codes::UNKNOWN_ROUTE, "no such resource"));
            }
            let method = Method::from_bytes(http_method.as_bytes())
                .map_err(|_| invalid("`httpMethod` is no method"))?;
            Ok(Call { method, path, body: inner.unwrap_or_default() })
        }
        other => Err(invalid(format!("unsupported method `{}`", other.escape_default()))),
    }
}

/// An agent's name in a path: names need no encoding, anything else is unknown.
fn agent_segment(name: &str) -> String {
    const KEPT: &percent_encoding::AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    utf8_percent_encode(name, KEPT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> Result<Call, ApiError> {
        parse(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn an_envelope_names_a_route() {
        for (text, method, path, body) in [
            (r#"{"method":"info"}"#, "GET", "/info", ""),
            (
                r#"{"method":"agent/run","params":{"agentId":"a.b"},"body":{"x":1}}"#,
                "POST",
                "/agent/a.b/run",
                r#"{"x":1}"#,
            ),
            (
                r#"{"method":"agent/connect","params":{"agentId":"a/b"},"body":{}}"#,
                "POST",
                "/agent/a%2Fb/connect",
                "{}",
            ),
            (
                r#"{"method":"agent/stop","params":{"agentId":"a","threadId":"t?1"}}"#,
                "POST",
                "/agent/a/stop/t%3F1",
                "",
            ),
            (
                r#"{"method":"resource/request","params":{"path":"/threads?agentId=a","httpMethod":"get"}}"#,
                "GET",
                "/threads?agentId=a",
                "",
            ),
            (
                r#"{"method":"resource/request","params":{"path":"/threads/t","httpMethod":"PATCH"},"body":{"name":"n"}}"#,
                "PATCH",
                "/threads/t",
                r#"{"name":"n"}"#,
            ),
        ] {
            let call = call(text).expect(text);
            assert_eq!(
                (call.method.as_str(), &*call.path, &*call.body),
                (method, path, body.as_bytes()),
                "{text}"
            );
        }
    }

    #[test]
    fn broken_envelopes_are_refused() {
        for text in [
            "",
            "[]",
            "1",
            "{}",
            r#"{"method":1}"#,
            r#"{"method":"agent/fly"}"#,
            r#"{"method":"agent/run"}"#,
            r#"{"method":"agent/run","params":{"agentId":" "}}"#,
            r#"{"method":"agent/run","params":{"agentId":1}}"#,
            r#"{"method":"agent/run","params":[]}"#,
            r#"{"method":"agent/run","params":"a"}"#,
            r#"{"method":{}}"#,
            r#"{"method":"info""#,
            r#"{"method":null}"#,
            r#"{"method":"agent/stop","params":{"agentId":"a"}}"#,
            r#"{"method":"resource/request","params":{"path":"/threads"}}"#,
        ] {
            let error = call(text).expect_err("invalid");
            assert_eq!(error.code, codes::BAD_REQUEST, "{text}");
            let is_type = |word: &str| ["struct", "enum", "Envelope", "Params", "RawValue"].contains(&word);
            assert!(!error.message.split(' ').any(is_type), "{text}: {}", error.message);
        }
        for path in ["/info", "//x", "/agent/a/run", "/threadsx", "/memories", "threads"] {
            let text =
                format!(r#"{{"method":"resource/request","params":{{"path":"{path}","httpMethod":"GET"}}}}"#);
            assert_eq!(call(&text).expect_err("invalid").code, codes::UNKNOWN_ROUTE, "{path}");
        }
    }
}
