//! The routes of one agent: run, connect, stop.

use agentwire_core::{
    Tally,
    event::{RunId, RunInput, ThreadId},
    format::ag_ui,
};
use agentwire_store::StoreError;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::super::super::{
    json,
    request::{ApiRequest, JsonRequest},
    response, runs,
    start::{has_known_role, run_request, start, sync},
    threads,
};
use crate::{
    codes, error::ApiError, human::given::AnswerProtocol, run::admission::check_id,
    stream::output::OutputFormat,
};

/// The encoding of streams: CopilotKit's client validates events by the schemas of AG-UI 0.0.59.
pub(super) fn output_format() -> OutputFormat {
    let profile = ag_ui::FORMAT.profile("copilotkit").unwrap_or(&ag_ui::FORMAT.profiles[0]);
    OutputFormat::new(&ag_ui::FORMAT, profile)
}

async fn input_of(request: &ApiRequest) -> Result<RunInput, ApiError> {
    let read = |text: &str| {
        let mut tally = Tally::default();
        has_known_role(ag_ui::input::from_json(text, &mut tally)?, &tally)
    };
    request.parse(read).await
}

/// `POST run`: starts a run or joins it.
pub(super) async fn run(JsonRequest(request): JsonRequest) -> Result<Response, ApiError> {
    let input = input_of(&request).await?;
    let output_format = output_format();
    let mut run_request = run_request(&request, input, AnswerProtocol::AgUi)?;
    run_request.output_format = Some(output_format.name());
    start(&request, run_request, output_format).await
}

/// `POST connect`: the conversation, with the active run to its end. An unknown thread has no events.
pub(super) async fn connect(JsonRequest(request): JsonRequest) -> Result<Response, ApiError> {
    let input = input_of(&request).await?;
    let mut input = run_request(&request, input, AnswerProtocol::AgUi)?.input;
    input.messages.clear();
    input.resume = None;
    check_id("thread", &input.thread)?;
    let output_format = output_format();
    match has_thread(&request, &input.thread).await? {
        true => sync(&request, &input, output_format).await,
        false => response::events(&request, &input.thread, &input.run, Vec::new(), output_format).await,
    }
}

/// True if a thread exists here or on the agent's side.
async fn has_thread(request: &ApiRequest, thread: &ThreadId) -> Result<bool, ApiError> {
    match request.state.gateway.store().thread(&request.owner, thread).await {
        Ok(_) => Ok(true),
        Err(StoreError::NotFound(_)) => Ok(threads::read_snapshot(request, thread).await?.is_some()),
        Err(error) => Err(error.into()),
    }
}

/// `POST stop/{id}`: stops the active run of a thread; with `{"runId"}` only if it is that one.
pub(super) async fn stop(JsonRequest(request): JsonRequest) -> Result<Response, ApiError> {
    let wanted = request.parse(parse_stop).await?;
    let thread = ThreadId::from(request.param("id"));
    let active = runs::active_run(&request, &thread).await?;
    let is_wanted = |run: &RunId| {
        wanted
            .as_ref()
            .is_none_or(|wanted| wanted == run || crate::run::continuation::is_same_series(run, wanted))
    };
    let Some(run) = active.filter(is_wanted) else {
        let message = match wanted {
            Some(_) => "This is not the active run of the thread.",
            None => "The thread has no active run.",
        };
        return Ok(json(json!({"stopped": false, "message": message}).to_string()));
    };
    let stopped = runs::stop_run(&request, &run).await;
    request.audited("stop", stopped, |record| record.run(&run))?;
    let interrupt = json!({"type": "RUN_ERROR", "message": "Run stopped by user", "code": "STOPPED"});
    Ok(json(json!({"stopped": true, "interrupt": interrupt}).to_string()))
}

/// The run of a stop request: an object with at most `runId`, or nothing.
fn parse_stop(text: &str) -> Result<Option<RunId>, ApiError> {
    let invalid = |message: &str| ApiError::new(codes::BAD_REQUEST, message);
    if text.trim().is_empty() {
        return Ok(None);
    }
    let body: Map<String, Value> = serde_json::from_str(text).map_err(|_| invalid("invalid stop request"))?;
    if body.keys().any(|key| key != "runId") {
        return Err(invalid("invalid stop request").hint("allowed: `runId`"));
    }
    match body.get("runId") {
        None => Ok(None),
        Some(Value::String(run)) if !run.trim().is_empty() => Ok(Some(run.as_str().into())),
        Some(_) => Err(invalid("`runId` must be the id of a run")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_request_has_at_most_a_run() {
        for text in ["", " ", "{}"] {
            assert_eq!(parse_stop(text).expect("valid"), None, "{text}");
        }
        assert_eq!(parse_stop(r#"{"runId":"r"}"#).expect("valid"), Some("r".into()));
        for text in ["[]", "null", r#"{"runId":""}"#, r#"{"runId":1}"#, r#"{"threadId":"t"}"#, "{"] {
            assert_eq!(parse_stop(text).expect_err("invalid").code, codes::BAD_REQUEST, "{text}");
        }
    }
}
