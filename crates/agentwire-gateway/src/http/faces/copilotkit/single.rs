//! The single-route transport: an envelope that names one of the other routes.

use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    http::{Method, Uri, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tower::ServiceExt;

use super::{
    super::super::request::{check_content_type, count_known, payer, read_body},
    MultiRoute,
};
use crate::{codes, cpu_work, error::ApiError, gateway::Gateway};

/// The body of a request.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    method: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    params: Params,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Params {
    agent_id: Option<String>,
    thread_id: Option<String>,
    path: Option<String>,
    http_method: Option<String>,
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
    count_known(&gateway, &mut parts)?;
    check_content_type(&parts.headers)?;
    let limits = &gateway.settings().limits;
    let mut held = gateway.bytes().hold(payer(&parts));
    let body = read_body(&parts.headers, body, limits.body, limits.request_timeout, &mut held).await?;
    let call = match body.len() > cpu_work::SHORT_TEXT {
        true => cpu_work::spawn(move || parse(&body)).await?,
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
    let envelope: Envelope<'_> =
        serde_json::from_str(text).map_err(|error| invalid(format!("the envelope: {error}")))?;
    let named = |value: Option<String>, name: &str| {
        let value = value.filter(|value| !value.trim().is_empty());
        value.ok_or_else(|| invalid(format!("missing or invalid parameter `{name}`")))
    };
    let encoded = |value: &str| utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
    let inner = envelope.body.map(|raw| body.slice_ref(raw.get().as_bytes()));
    let params = envelope.params;
    let method = envelope.method.ok_or_else(|| invalid("`method` is missing"))?;
    let post = |path: String, body: Option<Bytes>| {
        Ok(Call { method: Method::POST, path, body: body.unwrap_or_default() })
    };
    match &*method {
        "info" => Ok(Call { method: Method::GET, path: "/info".into(), body: Bytes::new() }),
        "agent/run" | "agent/connect" => {
            let agent = agent_segment(&named(params.agent_id, "agentId")?);
            post(format!("/agent/{agent}/{}", method.trim_start_matches("agent/")), inner)
        }
        "agent/stop" => {
            let agent = agent_segment(&named(params.agent_id, "agentId")?);
            let thread = encoded(&named(params.thread_id, "threadId")?);
            post(format!("/agent/{agent}/stop/{thread}"), inner)
        }
        "resource/request" => {
            let path = named(params.path, "path")?;
            let http_method = named(params.http_method, "httpMethod")?.to_uppercase();
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
            r#"{"method":"agent/stop","params":{"agentId":"a"}}"#,
            r#"{"method":"resource/request","params":{"path":"/threads"}}"#,
        ] {
            assert_eq!(call(text).expect_err("invalid").code, codes::BAD_REQUEST, "{text}");
        }
        for path in ["/info", "//x", "/agent/a/run", "/threadsx", "/memories", "threads"] {
            let text =
                format!(r#"{{"method":"resource/request","params":{{"path":"{path}","httpMethod":"GET"}}}}"#);
            assert_eq!(call(&text).expect_err("invalid").code, codes::UNKNOWN_ROUTE, "{path}");
        }
    }
}
