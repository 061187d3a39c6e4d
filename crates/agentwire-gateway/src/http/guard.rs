//! The guard of a route: authenticates the request and checks the route's scope, before a byte of the body is read.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::request::Parts,
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::peer::connection_address;
use crate::{
    auth::{Principal, RequestHead, RequiredScope},
    codes,
    error::ApiError,
    gateway::Gateway,
};

/// The requirements of a route.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) gateway: Gateway,
    pub(super) scope: RequiredScope,
    /// The agent of the route; empty for those of the server.
    pub(super) agent: Arc<str>,
}

impl Guard {
    /// The guard of a route of the server.
    pub(super) fn of_server(gateway: &Gateway, scope: RequiredScope) -> Self {
        Self { gateway: gateway.clone(), scope, agent: "".into() }
    }
}

/// Lets a request pass whose principal may use the route. The principal becomes an extension of the request.
pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    // The body is not shared between threads.
    let (mut parts, body) = request.into_parts();
    match guard.check(&parts).await {
        Ok(principal) => {
            parts.extensions.insert(principal);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(error) => error.into_response(),
    }
}

impl Guard {
    /// The checks in their order; nothing later runs if an earlier one refuses.
    async fn check(&self, request: &Parts) -> Result<Arc<Principal>, ApiError> {
        let Self { gateway, scope, agent } = self;
        if *scope == RequiredScope::Public {
            return Ok(Principal::anonymous());
        }
        let connection = connection_address(&request.extensions);
        let head = RequestHead { headers: &request.headers, connection, now: gateway.store().now() };
        let principal = gateway.authenticator().authenticate(head).await?;
        if !scope.is_met(&principal.scopes, agent) {
            return Err(forbidden(&scope.name(agent)));
        }
        Ok(principal)
    }
}

/// The error of a principal without a scope.
pub(super) fn forbidden(scope: &str) -> ApiError {
    ApiError::new(codes::FORBIDDEN, format!("the scope `{scope}` is missing"))
}
