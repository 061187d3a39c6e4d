//! The guard of a route: authenticates the request and checks the route's scope, before a byte of the body is read.

use std::sync::Arc;

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderValue, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{
    peer::{Peer, connection_address},
    request::{Connection, count_known, percent_decode},
};
use crate::{
    auth::{Action, AuthMethod, Principal, RequestHead, RequiredScope, missing_scope},
    error::ApiError,
    gateway::Gateway,
    ops::audit::Caller,
};

/// The requirements of a route.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) gateway: Gateway,
    pub(super) scope: RequiredScope,
    /// The template of the route.
    pub(super) route: &'static str,
    /// True if the route is a stream that a ticket opens.
    pub(super) takes_tickets: bool,
    /// The agent of the route; empty for those of the server.
    pub(super) agent: Arc<str>,
}

impl Guard {
    /// The guard of a route of the server.
    pub(super) fn of_server(gateway: &Gateway, scope: RequiredScope, route: &'static str) -> Self {
        Self { gateway: gateway.clone(), scope, route, takes_tickets: false, agent: "".into() }
    }
}

/// Lets a request pass whose principal may use the route. The principal becomes an extension of the request.
pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    // The body is not shared between threads.
    let (mut parts, body) = request.into_parts();
    let caller = parts.extensions.get::<Arc<Caller>>().cloned();
    if let Some(caller) = &caller {
        let route = parts.extensions.get::<MatchedPath>().map_or(guard.route, MatchedPath::as_str);
        caller.set_route(route, &guard.agent);
        if guard.scope == RequiredScope::Public {
            caller.leave_out();
        }
    }
    match guard.check(&mut parts, caller.as_deref()).await {
        Ok(principal) => {
            if let Some(caller) = &caller {
                caller.admit();
            }
            let is_ticket = principal.method == AuthMethod::Ticket;
            parts.extensions.insert(principal);
            let mut response = next.run(Request::from_parts(parts, body)).await;
            if is_ticket {
                // The address has a credential in it.
                response
                    .headers_mut()
                    .insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
            }
            response
        }
        Err(error) => error.into_response(),
    }
}

impl Guard {
    /// The checks in their order; nothing later runs if an earlier one refuses.
    async fn check(&self, request: &mut Parts, caller: Option<&Caller>) -> Result<Arc<Principal>, ApiError> {
        let Self { gateway, scope, route, agent, .. } = self;
        if *scope == RequiredScope::Public {
            return Ok(Principal::anonymous());
        }
        // A request that another route has let in and passes on.
        if let Some(principal) = request.extensions.get::<Arc<Principal>>() {
            return self.check_scope(request, caller, principal.clone()).await;
        }
        let peer = Peer::of(request).0;
        gateway.quotas().peer_request(peer)?;
        let connection = connection_address(&request.extensions);
        let from = request.extensions.get::<Connection>();
        let head = RequestHead {
            headers: &request.headers,
            method: request.method.as_str(),
            route,
            agent,
            connection,
            peer,
            certificate: from.and_then(|from| from.certificate.as_deref()),
            ticket: self.ticket(request),
            now: gateway.store().now(),
        };
        let principal = match gateway.authenticator().authenticate(&head).await {
            Ok(principal) => principal,
            Err(error) => {
                if let Some(caller) = caller {
                    caller.set_shown(gateway.authenticator().shown(&head));
                }
                // Of a peer without a valid credential only.
                return Err(gateway.quotas().failure(peer, error));
            }
        };
        if let Some(caller) = caller {
            caller.set_principal(&principal);
        }
        count_known(gateway, &principal, request)?;
        self.check_scope(request, caller, principal).await
    }

    /// `FORBIDDEN` if the route's scope is missing. A change is on record before it is made, if that is configured.
    async fn check_scope(
        &self,
        request: &Parts,
        caller: Option<&Caller>,
        principal: Arc<Principal>,
    ) -> Result<Arc<Principal>, ApiError> {
        let Self { gateway, scope, agent, .. } = self;
        let is_met = match scope {
            // A scope on an agent that is not there opens nothing.
            RequiredScope::AnyAction => {
                let registry = gateway.registry();
                let is_allowed =
                    |name: &str| Action::ALL.into_iter().any(|it| principal.scopes.allow(name, it));
                registry.agents.keys().any(|name| is_allowed(name))
            }
            RequiredScope::AnyAgent(action) => {
                gateway.registry().agents.keys().any(|name| principal.scopes.allow(name, *action))
            }
            scope => scope.is_met(&principal.scopes, agent),
        };
        if !is_met {
            return Err(missing_scope(&scope.name(agent)));
        }
        if !request.method.is_safe() && !scope.is_read() {
            gateway.audit().begin(caller).await?;
        }
        Ok(principal)
    }
}

impl Guard {
    /// The ticket of a request to a stream, with the run in the path.
    fn ticket(&self, request: &Parts) -> Option<(String, String)> {
        if !self.takes_tickets {
            return None;
        }
        let query = request.uri.query()?.split('&');
        let ticket =
            query.filter_map(|pair| pair.split_once('=')).find(|(key, _)| percent_decode(key) == "ticket")?;
        // `/runs/{run}/stream`, below any prefix.
        let run = request.uri.path().rsplit('/').nth(1)?;
        let run = percent_encoding::percent_decode_str(run).decode_utf8_lossy().into_owned();
        Some((percent_decode(ticket.1), run))
    }
}
