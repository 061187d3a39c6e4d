//! Requests to routes of a face that have no agent in their path.

use std::sync::Arc;

use agentwire_core::event::ThreadId;
use agentwire_store::{Owner, StoreError};
use axum::{
    body::HttpBody as _,
    extract::{FromRequest, Request},
    http::{Method, header, request::Parts},
};
use bytes::Bytes;
use serde_json::{Map, Value};

use super::super::{
    RouteGroup, RouteState,
    request::{
        ApiRequest, ask_for_sender, check_content_type, check_sender, names_at, path_params, payer,
        percent_decode, read_body,
    },
};
use crate::{
    auth::{Action, Principal},
    codes, cpu_work,
    error::ApiError,
    gateway::{AgentEntry, Gateway},
    limits::{HeldBytes, Party},
};

/// A request whose agent is in its query, in its body, or follows from its thread.
pub(super) struct FaceRequest {
    pub(super) gateway: Gateway,
    pub(super) principal: Arc<Principal>,
    parts: Parts,
    pub(super) body: Bytes,
    held: Option<HeldBytes>,
    params: Vec<(String, String)>,
}

impl FromRequest<Gateway> for FaceRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, gateway: &Gateway) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let params = path_params(&mut parts).await?;
        let principal = parts.extensions.get::<Arc<Principal>>().cloned();
        let principal = principal.ok_or_else(|| ApiError::new(codes::INTERNAL, "the route has no guard"))?;
        let (mut bytes, mut held) = (Bytes::new(), None);
        // A request without a body needs no type for it.
        let has_body = parts.headers.contains_key(header::CONTENT_TYPE) || !body.is_end_stream();
        if parts.method != Method::GET && has_body {
            check_content_type(&parts.headers)?;
            let limits = &gateway.settings().limits;
            let mut taken = gateway.bytes().hold(payer(&parts));
            bytes = read_body(&parts.headers, body, limits.body, limits.request_timeout, &mut taken).await?;
            held = Some(taken);
        }
        let identify = gateway.registry().identify.clone();
        ask_for_sender(identify.as_ref(), &mut parts, &params, &bytes, ("", "server")).await?;
        Ok(Self { gateway: gateway.clone(), principal, parts, body: bytes, held, params })
    }
}

impl FaceRequest {
    /// The agent of a name or of the alias `default`, if the sender may do this with it.
    pub(super) fn agent(&self, name: &str, action: Action) -> Option<Arc<AgentEntry>> {
        let registry = self.gateway.registry();
        let alias = registry.default.as_deref().filter(|_| name == "default");
        let agent = registry.agents.get(name).or_else(|| registry.agents.get(alias?))?;
        self.may(agent, action).then(|| agent.clone())
    }

    fn may(&self, agent: &AgentEntry, action: Action) -> bool {
        self.principal.scopes.allow(&agent.name, action)
    }

    /// The agents that the sender may do this with, one for each set of threads; the default one first.
    pub(super) fn agents(&self, action: Action) -> Vec<Arc<AgentEntry>> {
        let registry = self.gateway.registry();
        let default = registry.default.as_deref().and_then(|name| registry.agents.get(name));
        let mut found: Vec<Arc<AgentEntry>> = Vec::new();
        for agent in default.into_iter().chain(registry.agents.values()) {
            let is_known = found.iter().any(|known| known.owner_agent() == agent.owner_agent());
            if !is_known && agent.settings.routes.history && self.may(agent, action) {
                found.push(agent.clone());
            }
        }
        found
    }

    fn state(&self, agent: &Arc<AgentEntry>, group: RouteGroup) -> RouteState {
        let identity = Arc::new(group.identity(self.gateway.settings(), &agent.settings));
        RouteState { gateway: self.gateway.clone(), agent: agent.clone(), identity, group }
    }

    fn owner(&self, state: &RouteState) -> Result<Owner, ApiError> {
        let Self { principal, parts, params, body, .. } = self;
        check_sender(state, parts)?;
        let (tenant, user) = names_at(principal, &state.identity, parts, params, body)?;
        Ok(Owner::new(tenant, user, state.agent.owner_agent()))
    }

    /// The owner of the sender's threads at an agent.
    pub(super) fn owner_at(&self, agent: &Arc<AgentEntry>) -> Result<Owner, ApiError> {
        self.owner(&self.state(agent, RouteGroup::History))
    }

    /// The agent among `candidates` that has the thread, the first one of several; `None` if it is stored nowhere.
    pub(super) async fn agent_with(
        &self,
        candidates: &[Arc<AgentEntry>],
        thread: &ThreadId,
    ) -> Result<Option<Arc<AgentEntry>>, ApiError> {
        for agent in candidates {
            let owner = self.owner_at(agent)?;
            match self.gateway.store().thread(&owner, thread).await {
                Ok(_) => return Ok(Some(agent.clone())),
                Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// The same request as one to a route of an agent.
    pub(super) fn to(self, agent: &Arc<AgentEntry>, group: RouteGroup) -> Result<ApiRequest, ApiError> {
        let state = self.state(agent, group);
        let request = ApiRequest::new(&state, self.params, self.parts, self.body, self.held)?;
        request.check_rate()?;
        Ok(request)
    }

    /// The party that pays for the work of the request.
    pub(super) fn sender(&self) -> Party {
        payer(&self.parts)
    }

    /// The body as an object, read off the workers if it is long; none is an empty one.
    pub(super) async fn object(&self) -> Result<serde_json::Result<Map<String, Value>>, ApiError> {
        if self.body.trim_ascii().is_empty() {
            return Ok(Ok(Map::new()));
        }
        let body = self.body.clone();
        cpu_work::by_length(self.sender(), body.len(), move || serde_json::from_slice(&body)).await
    }

    /// A path parameter.
    pub(super) fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The query as it was sent.
    pub(super) fn raw_query(&self) -> &str {
        self.parts.uri.query().unwrap_or_default()
    }

    /// A query parameter, decoded.
    pub(super) fn query(&self, name: &str) -> Option<String> {
        let pairs = self.parts.uri.query()?.split('&');
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).find_map(|(key, value)| {
            (percent_decode(key) == name).then(|| percent_decode(value)).filter(|value| !value.is_empty())
        })
    }
}
