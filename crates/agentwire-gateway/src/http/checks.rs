//! The checks that every request passes before routing ends in a handler, in their order. Nothing later runs if an
//! earlier step refuses.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};

use super::peer::Peer;
use crate::gateway::Gateway;

/// Checks a request before its handler runs.
pub(super) async fn check(State(gateway): State<Gateway>, mut request: Request, next: Next) -> Response {
    let peer = Peer::find(request.extensions(), request.headers(), &gateway.settings().proxies);
    request.extensions_mut().insert(peer);
    next.run(request).await
}
