//! Authentication and authorisation.

mod approvals;
#[cfg(unix)]
mod audit;
mod credentials;
mod forgeries;
mod history;
mod key_sets;
mod keys;
mod streams;
mod tls;

use agentwire_gateway::settings::{Auth, AuthMode, JwtIssuer};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::Value;

use crate::support::*;

/// Settings that require a token of an issuer.
pub(crate) fn required(issuers: Vec<JwtIssuer>) -> Auth {
    let mut auth = Auth::default();
    auth.mode = AuthMode::Required;
    auth.jwt = issuers;
    auth
}

/// Status, code and challenge of a response.
async fn refusal(request: RequestBuilder) -> (u16, String, String) {
    let response = with_timeout("a response", request.send()).await.expect("a response");
    let header = |name: &str| {
        response.headers().get(name).map_or(String::new(), |value| value.to_str().expect("ASCII").to_owned())
    };
    (response.status().as_u16(), header("agentwire-error-code"), header("www-authenticate"))
}

async fn status(request: RequestBuilder) -> u16 {
    with_timeout("a response", request.send()).await.expect("a response").status().as_u16()
}

async fn ok(request: RequestBuilder) -> Value {
    let (status, body) = answer(request).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body
}

const INVALID: &str = r#"Bearer error="invalid_token""#;
