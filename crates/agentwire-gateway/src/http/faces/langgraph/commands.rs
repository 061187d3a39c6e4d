//! `POST threads/{id}/commands`: one command of protocol v2. A response has the number of its command; its errors are
//! values, unless the request itself is refused.

use agentwire_core::event::{Outcome, RunId, ThreadId};
use agentwire_store::{RunStatus, StoreError};
use axum::{http::StatusCode, response::Response};
use serde_json::{Map, Value, json};

use super::{
    super::{super::json, request::FaceRequest},
    body::RunBody,
    errors::detail,
    events,
    start::{self, Prepared},
};
use crate::{auth::Action, codes, cpu_work, error::ApiError, stream::reader};

/// The strategies for a run that has the thread; another one is the default.
const STRATEGIES: [&str; 4] = ["reject", "interrupt", "rollback", "enqueue"];

/// A command that was understood and cannot be carried out.
struct Refusal {
    code: &'static str,
    message: String,
}

enum Failure {
    Refused(Refusal),
    /// The request gets no response to its command.
    Request(ApiError),
}

fn refusal(code: &'static str, message: impl Into<String>) -> Failure {
    Failure::Refused(Refusal { code, message: message.into() })
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let code = match error.code {
            codes::BAD_REQUEST | codes::BAD_ID | codes::UNKNOWN_AGENT => "invalid_argument",
            codes::UNKNOWN_THREAD => "no_such_checkpoint",
            codes::UNKNOWN_RUN => "no_such_run",
            codes::FORBIDDEN => "permission_denied",
            // Clients try again by the status.
            _ if error.status().is_server_error() || error.status() == StatusCode::TOO_MANY_REQUESTS => {
                return Self::Request(error);
            }
            _ => "unknown_error",
        };
        refusal(code, error.message)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        ApiError::from(error).into()
    }
}

/// `POST threads/{id}/commands`: `{id, method, params}`.
pub(super) async fn command(request: FaceRequest) -> Result<Response, ApiError> {
    let body = request.body.clone();
    let parse = move || serde_json::from_slice::<Value>(&body);
    let parsed = match request.body.len() > cpu_work::SHORT_TEXT {
        true => cpu_work::spawn(request.sender(), parse).await?,
        false => parse(),
    };
    let Ok(mut command) = parsed else { return Ok(detail("Invalid JSON body")) };
    let (id, method) = (command["id"].as_i64(), command["method"].as_str().map(str::to_owned));
    let (Some(id), Some(method)) = (id, method) else {
        let id = command.as_object_mut().and_then(|command| command.remove("id"));
        let message = "Protocol commands must include an integer id and string method.";
        let mut response = json(error_json(id.unwrap_or(Value::Null), "invalid_argument", message));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    };
    let params = match command["params"].take() {
        Value::Object(params) => params,
        _ => Map::new(),
    };
    let done = match &*method {
        "run.start" => run_start(request, params).await,
        "input.respond" => respond(request, &params).await,
        "agent.getTree" => tree(request).await,
        "subscription.subscribe" | "subscription.unsubscribe" | "subscription.reconnect" => {
            Err(refusal("not_supported", "a stream of events is a subscription: use `stream/events`"))
        }
        other => {
            Err(refusal("unknown_command", format!("Unknown protocol command: {}", other.escape_default())))
        }
    };
    match done {
        Ok((result, through)) => {
            let meta = json!({ "applied_through_seq": through });
            Ok(json(json!({"type": "success", "id": id, "result": result, "meta": meta}).to_string()))
        }
        Err(Failure::Refused(Refusal { code, message })) => Ok(json(error_json(id.into(), code, &message))),
        Err(Failure::Request(error)) => Err(error),
    }
}

fn error_json(id: Value, code: &str, message: &str) -> String {
    json!({"type": "error", "id": id, "error": code, "message": message}).to_string()
}

/// The body of the classic routes that stands for a command, with its run.
async fn start_run(
    request: FaceRequest,
    assistant: &str,
    mut body: Map<String, Value>,
) -> Result<(RunId, u64), Failure> {
    // Nobody reads the run by this request.
    body.insert("on_disconnect".into(), "continue".into());
    body.insert("if_not_exists".into(), "create".into());
    let (thread, run) = (ThreadId::from(request.param("id")), RunId::from(request.gateway.new_id("run")));
    let text = Value::Object(body).to_string();
    let parse = move || RunBody::parse(&text, thread, run);
    let body = match request.body.len() > cpu_work::SHORT_TEXT {
        true => cpu_work::spawn(request.sender(), parse).await.flatten()?,
        false => parse()?,
    };
    let prepared: Prepared = start::prepare(request, assistant, body, false, start::ALL_MODES).await?;
    let (request, admission) = prepared.admit().await?;
    let run = request.state.gateway.store().run(&request.owner, admission.run()).await?;
    Ok((run.run.clone(), events::first_seq(&run)))
}

/// `run.start`: `{assistant_id, input, config?, metadata?, multitaskStrategy?}`. While the thread waits for an answer, the
/// input is the answer.
async fn run_start(request: FaceRequest, params: Map<String, Value>) -> Result<(Value, u64), Failure> {
    let assistant = match params.get("assistant_id").and_then(Value::as_str) {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => return Err(refusal("invalid_argument", "run.start requires an assistant_id.")),
    };
    let checkpoint = params.get("config").map(|config| &config["configurable"]["checkpoint_id"]);
    let checkpoint = match checkpoint {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) if !id.trim().is_empty() => Some(id.clone()),
        Some(_) => {
            let message = "config.configurable.checkpoint_id must be a non-empty string.";
            return Err(refusal("invalid_argument", message));
        }
    };
    let mut body = Map::new();
    for key in ["config", "metadata", "context"] {
        body.extend(params.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    let strategy = params.get("multitaskStrategy").and_then(Value::as_str);
    if let Some(strategy) = strategy.filter(|strategy| STRATEGIES.contains(strategy)) {
        body.insert("multitask_strategy".into(), strategy.into());
    }
    let input = params.get("input").cloned().unwrap_or(Value::Null);
    let is_answer = !input.is_null() && checkpoint.is_none() && !questions(&request).await?.is_empty();
    match is_answer {
        true => body.insert("command".into(), json!({ "resume": input })),
        false => body.insert("input".into(), input),
    };
    body.extend(checkpoint.map(|id| ("checkpoint_id".to_owned(), id.into())));
    let (run, first) = start_run(request, &assistant, body).await?;
    Ok((json!({ "run_id": run.as_str() }), first))
}

/// The ids of the questions that a thread waits for; none if it is unknown.
async fn questions(request: &FaceRequest) -> Result<Vec<String>, Failure> {
    let thread = ThreadId::from(request.param("id"));
    let Some(agent) = request.agent_with(&request.agents(Action::Run), &thread).await? else {
        return Ok(Vec::new());
    };
    let open = request.gateway.open_items(&request.owner_at(&agent)?, &thread).await?;
    Ok(match reader::outcome_of(open.iter()) {
        Some(Outcome::Interrupt { interrupts }) => interrupts.iter().map(|it| it.id.to_string()).collect(),
        _ => Vec::new(),
    })
}

/// `input.respond`: `{interrupt_id, response}`, or `{responses: [{interrupt_id, response}]}`.
async fn respond(request: FaceRequest, params: &Map<String, Value>) -> Result<(Value, u64), Failure> {
    let bad = |message: &str| refusal("invalid_argument", format!("input.respond {message}"));
    for option in ["update", "goto"] {
        if params.get(option).is_some_and(|value| !value.is_null()) {
            return Err(refusal("not_supported", format!("`{option}` is not offered by this server")));
        }
    }
    let one = [Value::Object(params.clone())];
    let entries = match params.get("responses") {
        Some(Value::Array(entries)) if entries.is_empty() => {
            return Err(bad("requires at least one response."));
        }
        Some(Value::Array(entries)) => &entries[..],
        _ => &one[..],
    };
    let mut answers = Map::new();
    for entry in entries {
        let Some(id) = entry["interrupt_id"].as_str() else { return Err(bad("requires an interrupt_id.")) };
        let is_path = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
        if entry.get("namespace").is_some_and(|namespace| !is_path(namespace)) {
            return Err(bad("requires namespace to be a list of strings."));
        }
        answers.insert(id.to_owned(), entry.get("response").cloned().unwrap_or(Value::Null));
    }
    let thread = ThreadId::from(request.param("id"));
    let agent = request.agent_with(&request.agents(Action::Run), &thread).await?;
    let Some(agent) = agent else {
        return Err(refusal("no_such_run", "No interrupted run is bound to this thread."));
    };
    let open = questions(&request).await?;
    if let Some(unknown) = answers.keys().find(|id| !open.contains(id)) {
        let message = format!("Unknown or already-consumed interrupt: {}", unknown.escape_default());
        return Err(refusal("no_such_interrupt", message));
    }
    let last = request.gateway.store().runs(&request.owner_at(&agent)?, &thread, None, 1).await?;
    // Agents may share their threads.
    let assistant = last.items.first().map_or_else(|| agent.name.to_string(), |run| run.agent.to_string());
    let mut body = Map::new();
    for key in ["config", "metadata"] {
        body.extend(params.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    body.insert("command".into(), json!({ "resume": answers }));
    let (_, first) = start_run(request, &assistant, body).await?;
    Ok((json!({}), first))
}

/// `agent.getTree`: the state of the last run.
async fn tree(request: FaceRequest) -> Result<(Value, u64), Failure> {
    let thread = ThreadId::from(request.param("id"));
    let agent = request.agent_with(&request.agents(Action::Read), &thread).await?;
    let none = || refusal("no_such_run", "No active run is bound to this thread.");
    let owner = request.owner_at(&agent.ok_or_else(none)?)?;
    let last = request.gateway.store().runs(&owner, &thread, None, 1).await?;
    let run = last.items.first().ok_or_else(none)?;
    let status = match run.status {
        RunStatus::Queued | RunStatus::Running | RunStatus::Paused => "running",
        RunStatus::Finished => "completed",
        RunStatus::Failed => "failed",
        RunStatus::Waiting | RunStatus::Stopped => "interrupted",
    };
    let tree = json!({"namespace": [], "status": status, "graph_name": &*run.agent, "children": []});
    Ok((json!({ "tree": tree }), events::first_seq(run)))
}
