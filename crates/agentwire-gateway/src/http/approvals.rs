//! The routes of approvals: the open questions of the approval gate in a tenant, and the votes on them.

use std::sync::Arc;

use agentwire_core::event::{RunInput, ThreadId};
use agentwire_store::{Conflict, OpenItem, Owner, PageToken, Pending, PendingFilter, StoreError, Tenant};
use axum::{
    extract::{FromRequestParts, RawPathParams, Request, State},
    http::{HeaderValue, request::Parts},
    response::Response,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{json, request};
use crate::{
    auth::{Action, Principal},
    codes, cpu_work,
    error::ApiError,
    gateway::{AgentEntry, Gateway},
    human::{
        approval::{self, GateQuestion},
        canonical,
        given::AnswerProtocol,
        pending,
        votes::{self, Person, Vote, Votes},
    },
    ops::audit::{Caller, Record},
    run::{
        admission::{AskedPolicies, RunRequest},
        trace::RunTrace,
    },
    timestamp::iso,
};

/// The most items of one page.
const PAGE: usize = 100;

/// Tries of a vote while others vote at the same time.
const TRIES: usize = 16;

/// Longest id: four encoded ids.
const MAX_ID: usize = 4096;

/// A request to a route of the server, with the names of its sender.
pub(super) struct ServerRequest {
    principal: Arc<Principal>,
    tenant: String,
    user: String,
    parts: Parts,
    body: Bytes,
}

impl FromRequestParts<Gateway> for ServerRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Gateway) -> Result<Self, ApiError> {
        Self::new(gateway, parts.clone(), Bytes::new()).await
    }
}

impl ServerRequest {
    async fn new(gateway: &Gateway, mut parts: Parts, body: Bytes) -> Result<Self, ApiError> {
        let identify = gateway.registry().identify.clone();
        request::ask_for_sender(identify.as_ref(), &mut parts, &[], &body, ("", "server")).await?;
        let principal = parts.extensions.get::<Arc<Principal>>().cloned();
        let principal = principal.ok_or_else(|| ApiError::new(codes::INTERNAL, "the route has no guard"))?;
        let (tenant, user) = request::names_of(&principal, &gateway.settings().identity, &parts, &body)?;
        if let Some(caller) = parts.extensions.get::<Arc<Caller>>() {
            caller.set_names(&tenant, &user);
        }
        request::count(gateway, &Owner::new(tenant.as_str(), user.as_str(), ""), &parts)?;
        Ok(Self { principal, tenant, user, parts, body })
    }

    /// The sender, for the audit log.
    fn caller(&self) -> Option<&Caller> {
        self.parts.extensions.get::<Arc<Caller>>().map(|caller| &**caller)
    }

    fn person(&self) -> Person<'_> {
        Person::new(&self.principal, &self.tenant, &self.user)
    }
}

/// `GET /approvals`: the questions that the sender may decide, oldest first. `?after=` selects a page; the header
/// `agentwire-next` is the `after` of the next one.
pub(super) async fn list(
    State(gateway): State<Gateway>,
    request: ServerRequest,
) -> Result<Response, ApiError> {
    let query = request.parts.uri.query().unwrap_or_default();
    let after = query.split('&').find_map(|pair| pair.strip_prefix("after="));
    let after = after.map(|text| text.parse().map(PageToken)).transpose();
    let after = after.map_err(|_| ApiError::new(codes::BAD_REQUEST, "`after` must be a whole number"))?;
    let tenant = Tenant::from(request.tenant.as_str());
    let page = gateway.store().open_items(&tenant, pending::APPROVAL, after, PAGE).await?;
    let owner = Owner::new(request.tenant.as_str(), request.user.as_str(), "");
    let mut shown = Vec::new();
    for open in &page.items {
        let agent = match decidable(&gateway, &request, open).await {
            Err(error) if error.code == codes::UNKNOWN_APPROVAL => continue,
            agent => agent?,
        };
        let show = || {
            let votes = Votes::of(&open.item);
            let is_shown =
                !votes.is_decided() && votes.check_person(&open.item, &open.owner, &request.person()).is_ok();
            is_shown.then(|| to_json(open, &agent, &votes).to_string())
        };
        shown.extend(match open.item.body.len() > cpu_work::SHORT_TEXT {
            true => cpu_work::request_in_place(&owner, show).await?,
            false => show(),
        });
    }
    if gateway.audit().is_on() {
        gateway.audit().note(Record::new(&owner, "list approvals").outcome(request.caller(), &Ok(())));
    }
    let mut response = json(format!("[{}]", shown.join(",")));
    if let Some(next) = page.next {
        response.headers_mut().insert("agentwire-next", HeaderValue::from(next.0));
    }
    Ok(response)
}

/// The agent of a question of the gate that the sender has the scope for: `UNKNOWN_APPROVAL`.
async fn decidable(
    gateway: &Gateway,
    request: &ServerRequest,
    open: &OpenItem,
) -> Result<Arc<AgentEntry>, ApiError> {
    let question = || GateQuestion::of(&open.item);
    let question = match open.item.body.len() > cpu_work::SHORT_TEXT {
        true => cpu_work::request_in_place(&open.owner, question).await?,
        false => question(),
    };
    question.ok_or_else(votes::unknown)?;
    let run = gateway.store().run(&open.owner, &open.item.run).await.map_err(|_| votes::unknown())?;
    let agent = gateway.registry().agents.get(&*run.agent).cloned().ok_or_else(votes::unknown)?;
    match request.principal.scopes.allow(&agent.name, Action::Answer) {
        true => Ok(agent),
        false => Err(votes::unknown()),
    }
}

fn to_json(open: &OpenItem, agent: &AgentEntry, votes: &Votes) -> Value {
    let OpenItem { owner, thread, item } = open;
    let body: Value = serde_json::from_str(&item.body).unwrap_or_default();
    let arguments = votes.arguments(&body);
    json!({
        "id": id_of(open),
        "thread": thread.as_str(),
        "run": item.run.as_str(),
        "agent": &*agent.name,
        "tool": body["name"],
        "argumentsHash": canonical::hash(&arguments),
        "arguments": arguments,
        "requester": owner.user.as_str(),
        "votes": votes.count(),
        "needed": votes.needed(),
        "createdAt": iso(item.created.0),
        "expiresAt": item.expires.map(|expires| iso(expires.0)),
    })
}

/// The id of an approval: the key of its item without the tenant, which is that of the sender.
fn id_of(open: &OpenItem) -> String {
    let OpenItem { owner, thread, item } = open;
    let key = json!([
        owner.user.as_str(),
        owner.agent.as_str(),
        thread.as_str(),
        item.run.as_str(),
        item.id.as_str()
    ]);
    URL_SAFE_NO_PAD.encode(key.to_string())
}

/// The open item of an id: `UNKNOWN_APPROVAL`, `INTERRUPT_EXPIRED`.
async fn find(gateway: &Gateway, tenant: &str, id: &str) -> Result<OpenItem, ApiError> {
    let key = (id.len() <= MAX_ID).then(|| URL_SAFE_NO_PAD.decode(id).ok()).flatten();
    let key = key.and_then(|key| serde_json::from_slice::<[String; 5]>(&key).ok());
    let Some([user, agent, thread, run, id]) = key else { return Err(votes::unknown()) };
    let (owner, thread) = (Owner::new(tenant, user, agent), ThreadId::from(thread));
    let wanted = [id.as_str().into()].into_iter().collect();
    let items = match gateway.store().pending(&owner, &thread, PendingFilter::Unanswered(wanted)).await {
        Err(StoreError::NotFound(_)) => return Err(votes::unknown()),
        items => items?,
    };
    let item =
        pending::find(&items, &id).filter(|item| item.run.as_str() == run && item.answer.is_none()).cloned();
    let item = item.ok_or_else(votes::unknown)?;
    if pending::is_expired(&item, gateway.store().now()) {
        return Err(ApiError::new(codes::INTERRUPT_EXPIRED, "the approval has expired"));
    }
    Ok(OpenItem { owner, thread, item })
}

/// A vote: `{"decision": "approve" | "deny", "argumentsHash", "editedArgs"?, "reason"?}`.
fn read_vote(body: &[u8]) -> Result<Vote, ApiError> {
    let bad = |message: &str| ApiError::new(codes::BAD_REQUEST, message);
    let members: Map<String, Value> =
        serde_json::from_slice(body).map_err(|error| bad(&format!("the body is no JSON object: {error}")))?;
    let is_yes = match members.get("decision").and_then(Value::as_str) {
        Some("approve") => true,
        Some("deny") => false,
        _ => return Err(bad("`decision` must be `approve` or `deny`")),
    };
    let arguments_hash = members.get("argumentsHash").and_then(Value::as_str).ok_or_else(|| {
        bad("`argumentsHash` is missing")
            .hint("it is in `GET /approvals`, and shows that you saw these arguments")
    })?;
    let edited = match members.get("editedArgs") {
        None | Some(Value::Null) => None,
        Some(edited @ Value::Object(_)) if is_yes => Some(edited.clone()),
        Some(Value::Object(_)) => return Err(bad("`editedArgs` needs the decision `approve`")),
        Some(_) => return Err(bad("`editedArgs` must be an object")),
    };
    let reason = match members.get("reason") {
        None | Some(Value::Null) => None,
        Some(Value::String(reason)) => Some(reason.clone()),
        Some(_) => return Err(bad("`reason` must be text")),
    };
    Ok(Vote { is_yes, arguments_hash: arguments_hash.to_owned(), edited, reason })
}

/// `POST /approvals/{id}`: votes. The last vote starts the run that the answer of the requester would start.
pub(super) async fn decide(State(gateway): State<Gateway>, request: Request) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let params = RawPathParams::from_request_parts(&mut parts, &()).await;
    let params = params
        .map_err(|error| ApiError::new(codes::BAD_REQUEST, format!("the path: {}", error.body_text())))?;
    let id = params.iter().find(|(key, _)| *key == "id").map_or(String::new(), |(_, id)| id.to_owned());
    let body = request::json_body(&gateway, &parts.headers, body).await?;
    let request = ServerRequest::new(&gateway, parts, body).await?;
    let done = vote(&gateway, &request, &id).await;
    if gateway.audit().is_on() {
        let owner = Owner::new(request.tenant.as_str(), request.user.as_str(), "");
        let record = Record::new(&owner, "approve").arguments(&request.body);
        gateway.audit().note(record.outcome(request.caller(), &done));
    }
    Ok(json(done?.to_string()))
}

async fn vote(gateway: &Gateway, request: &ServerRequest, id: &str) -> Result<Value, ApiError> {
    let sender = Owner::new(request.tenant.as_str(), request.user.as_str(), "");
    let read = async || {
        let body = request.body.clone();
        cpu_work::by_length(&sender, body.len(), move || read_vote(&body)).await?
    };
    read().await?;
    for _ in 0..TRIES {
        let open = find(gateway, &request.tenant, id).await?;
        let agent = decidable(gateway, request, &open).await?;
        let mut votes = Votes::of(&open.item);
        votes.check_person(&open.item, &open.owner, &request.person())?;
        let mut body: Value = serde_json::from_str(&open.item.body).unwrap_or_default();
        let vote = read().await?;
        if votes.is_decided() {
            // A repetition, or the process that recorded the decision died before it started the run.
            let same = (votes.status() == "approved") == vote.is_yes;
            if !same {
                return Err(ApiError::new(codes::ALREADY_ANSWERED, "it was decided differently before"));
            }
        } else {
            if let Some(edited) = &vote.edited {
                let check = || approval::check_edit(&open.item, edited);
                cpu_work::request_in_place(&open.owner, check).await??;
            }
            votes.add(&body, &request.user, vote)?;
            body[votes::VOTES] = votes.to_json();
            let body = body.to_string().into();
            match gateway.store().replace_item(&open.owner, &open.thread, &open.item, body).await {
                Err(StoreError::Conflict(Conflict::Item(_))) => continue,
                Err(StoreError::Expired(_)) => {
                    return Err(ApiError::new(codes::INTERRUPT_EXPIRED, "the approval has expired"));
                }
                Err(StoreError::NotFound(_)) => return Err(votes::unknown()),
                done => done?,
            }
        }
        let mut shown = json!({"status": votes.status(), "votes": votes.count(), "needed": votes.needed()});
        if votes.is_decided()
            && let Some(run) = start(gateway, agent, &open).await?
        {
            shown["runId"] = run.into();
        }
        return Ok(shown);
    }
    Err(ApiError::new(codes::STORE_UNAVAILABLE, "too many votes at once").retry_after(1))
}

/// Starts the run of the decisions, unless the thread waits for other answers.
async fn start(
    gateway: &Gateway,
    agent: Arc<AgentEntry>,
    open: &OpenItem,
) -> Result<Option<String>, ApiError> {
    let items = gateway.open_items(&open.owner, &open.thread).await?;
    let is_undecided = |item: &&Pending| pending::is_required(item) && !Votes::of(item).is_decided();
    if items.iter().any(|item| is_undecided(&item)) {
        return Ok(None);
    }
    // One id for the decisions on the items of a run: votes at once, also at several gateways, start it once.
    let asked_by = json!([open.owner.agent.as_str(), open.thread.as_str(), open.item.run.as_str()]);
    let run = format!("run-{}", canonical::hash(&asked_by));
    let run_request = RunRequest {
        agent,
        trace: gateway.tracer().map(|tracer| RunTrace::new(tracer.clone(), None, None)),
        owner: open.owner.clone(),
        input: RunInput::new(open.thread.clone(), run.as_str()),
        protocol: AnswerProtocol::AgUi,
        cut: None,
        headers: Arc::default(),
        context: None,
        one_message: false,
        output_format: None,
        echo: None,
        asked: AskedPolicies::default(),
        body: Bytes::new(),
        caller: None,
        may_answer: true,
        items: None,
        given: None,
        answers: None,
    };
    Ok(Some(gateway.admit(run_request).await?.run().to_string()))
}
