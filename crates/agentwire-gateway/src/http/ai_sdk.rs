//! The AI SDK routes: start a run, resume its stream, stop it.

use agentwire_core::{
    Tally,
    event::{Role, RunInput, ThreadId},
    format::ai_sdk,
};
use agentwire_store::{StoreError, Thread};
use axum::{
    body::Body,
    extract::Request,
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value};

use super::{
    cursor::Cursor,
    json,
    request::{ApiRequest, JsonRequest, percent_decode},
    response::{self, Following},
    runs,
    start::run_request,
    thread_list::{change_metadata, metadata_of},
};
use crate::{
    codes,
    error::{ApiError, ResponseSentence},
    human::given::AnswerProtocol,
    run::admission::RunRequest,
    settings::{AgentSettings, History},
    stream::output::OutputFormat,
};

/// `POST /api/chat`: starts a run.
pub(super) async fn post(JsonRequest(request): JsonRequest) -> Result<Response, ApiError> {
    let (gateway, settings) = (&request.state.gateway, &request.state.agent.settings);
    request.reserve_reader()?;
    let (thread, run) = (gateway.new_id("thread"), gateway.new_id("run"));
    // The SDK sends no run id; with a key, a repeated request joins the run of the first.
    let run = request
        .header("idempotency-key")
        .filter(|key| !key.is_empty())
        .map_or(run, |key| format!("key-{key}"));
    let read = move |text: &str| Ok(ai_sdk::input::from_json(text, thread, run, &mut Tally::default())?);
    let ai_sdk::input::ChatRequest { input, trigger, message, earlier_answers: earlier, .. } =
        request.parse(read).await?;
    let mut run_request = run_request(&request, input, AnswerProtocol::AiSdk { earlier })?;
    let resume = run_request.input.resume.clone();
    gateway.collect_answers(&mut run_request).await?;
    // The stream continues the messages that the client holds, with the decisions that it has made; the agent must not
    // get a message twice.
    let input = RunInput { resume, ..run_request.input.clone() };
    if gateway.settings().history(settings) != History::Client && ai_sdk::input::has_unnamed_messages(&input)
    {
        let stored = gateway.stored_messages(&request.owner, &input.thread).await?;
        ai_sdk::input::remove_stored_messages(&mut run_request.input, &stored);
    }
    let profile = request.query("profile");
    let output_format = output_format(profile.as_deref(), settings)?;
    // A regenerated turn, or the turn after an edit, replaces everything after the last message that the client sends.
    let last = input.messages.last();
    let is_edit = message.is_some_and(|id| last.is_some_and(|last| last.id == id));
    let is_user = last.is_some_and(|last| last.role() == Role::User);
    let is_anew = match trigger {
        ai_sdk::input::Trigger::Regenerate => true,
        ai_sdk::input::Trigger::Unspecified => is_edit || is_user,
        _ => is_edit,
    };
    let cut = last.filter(|_| is_anew).map(|last| last.id.clone());
    let admission = gateway.admit(RunRequest { cut, one_message: true, ..run_request }).await?;
    remember_profile(&request, &input.thread, profile.as_deref()).await;
    let following = Following { run: admission.run(), after: None, with_history: false, input: Some(&input) };
    response::follow(&request, following, output_format).await
}

/// `GET /api/chat/{id}/stream`: the stream of the thread's run from its start, or from a cursor; 204 if no run is active.
pub(super) async fn resume(request: ApiRequest) -> Result<Response, ApiError> {
    let thread = request.param("id").into();
    let profile = match request.query("profile") {
        Some(profile) => Some(profile),
        None => remembered_profile(&request, &thread).await?,
    };
    let output_format = output_format(profile.as_deref(), &request.state.agent.settings)?;
    let resumed = resume_active_run(&request, &thread, output_format).await?;
    Ok(resumed.unwrap_or_else(|| StatusCode::NO_CONTENT.into_response()))
}

/// `GET /api/chat?chatId=`: the same for `useChat` of version 4, which treats 204 as an error and expects an empty body.
pub(super) async fn resume_version_4(request: ApiRequest) -> Result<Response, ApiError> {
    // The client appends `?chatId=` to an address that may have a query already, and does not encode the id.
    let query = request.parts.uri.query().unwrap_or_default();
    let Some((before, thread)) = query.rsplit_once("chatId=") else {
        return Err(ApiError::new(codes::BAD_REQUEST, "`chatId` is missing, expected the id of a chat"));
    };
    let thread = thread.split('&').next().unwrap_or_default();
    let profile = before.split(['&', '?']).find_map(|pair| pair.strip_prefix("profile="));
    let output_format = output_format(Some(profile.unwrap_or("4")), &request.state.agent.settings)?;
    let (content_type, headers) = (output_format.profile.content_type, output_format.profile.headers);
    let resumed = resume_active_run(&request, &percent_decode(thread).into(), output_format).await?;
    Ok(resumed.unwrap_or_else(|| {
        let mut empty = [(header::CONTENT_TYPE, content_type)].into_response();
        for (name, value) in headers {
            empty.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        empty
    }))
}

async fn resume_active_run(
    request: &ApiRequest,
    thread: &ThreadId,
    mut output_format: OutputFormat,
) -> Result<Option<Response>, ApiError> {
    // The message may have started in an earlier run, before a front-end tool or a person was asked.
    output_format.options = output_format.options.with_whole_message();
    let (run, after) = match runs::cursor_in_thread(request, thread).await? {
        Some(Cursor { run, point }) => (run, Some(point)),
        None => match runs::active_run(request, thread).await? {
            Some(run) => (run, None),
            None => return Ok(None),
        },
    };
    let following = Following { run: &run, after, with_history: false, input: None };
    Ok(Some(response::follow(request, following, output_format).await?))
}

/// `POST /api/chat/{id}/stop`: stops the thread's run. Idempotent.
pub(super) async fn stop(request: ApiRequest) -> Result<Response, ApiError> {
    let Some(run) = runs::active_run(&request, &request.param("id").into()).await? else {
        return Ok(json(r#"{"status":"idle"}"#));
    };
    let stopped = runs::stop_run(&request, &run).await;
    request.audited("stop", stopped, |record| record.run(&run))?;
    Ok(json(r#"{"status":"stopped"}"#))
}

/// Error responses as a sentence, which `useChat` shows as it is; the code is in a header. JSON if the client asks for it.
pub(super) async fn errors_as_text(request: Request, next: Next) -> Response {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let wants_json = accept.is_some_and(|accept| accept.contains("application/json"));
    let mut response = next.run(request).await;
    let sentence = response.extensions_mut().remove::<ResponseSentence>();
    if let Some(sentence) = sentence.filter(|_| !wants_json) {
        *response.body_mut() = Body::from(sentence.text());
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    response
}

/// The member of a thread's metadata with the profile that its page asked for.
const PROFILE_KEY: &str = "aiSdkProfile";

/// The metadata of a thread; empty if it has none.
async fn thread_metadata(request: &ApiRequest, thread: &ThreadId) -> Result<Map<String, Value>, ApiError> {
    match request.state.gateway.store().thread(&request.owner, thread).await {
        Ok(record) => Ok(metadata_of(&record)),
        Err(StoreError::NotFound(_)) => Ok(Map::new()),
        Err(error) => Err(error.into()),
    }
}

/// The profile that the page of a thread asked for last, if it did.
pub(super) async fn remembered_profile(
    request: &ApiRequest,
    thread: &ThreadId,
) -> Result<Option<String>, ApiError> {
    let metadata = thread_metadata(request, thread).await?;
    Ok(metadata.get(PROFILE_KEY).and_then(Value::as_str).map(str::to_owned))
}

/// Stores the profile of a page, for its reconnects and its history. A failure costs only the memory.
async fn remember_profile(request: &ApiRequest, thread: &ThreadId, profile: Option<&str>) {
    match thread_metadata(request, thread).await {
        Ok(metadata) if metadata.get(PROFILE_KEY).and_then(Value::as_str) == profile => return,
        _ => {}
    }
    let change = |stored: &Thread| {
        let mut metadata = metadata_of(stored);
        match profile {
            Some(profile) => metadata.insert(PROFILE_KEY.into(), profile.into()),
            None => metadata.remove(PROFILE_KEY),
        };
        Ok(Value::Object(metadata).to_string())
    };
    if let Err(error) = change_metadata(request, thread, change).await {
        tracing::warn!(%thread, code = error.code, "the profile of a page could not be stored");
    }
}

/// The same with the id of the message that the response continues.
pub(super) fn output_format_with(
    profile: &str,
    settings: &AgentSettings,
    message: Option<&str>,
) -> Result<OutputFormat, ApiError> {
    let message = message.map(|id| format!("message={id}"));
    let options = settings.ai_sdk_options.iter().chain(&message);
    response::output_format(&ai_sdk::FORMAT, profile, options.map(String::as_str))
}

/// The profile of the query, or of the settings.
pub(super) fn output_format(
    profile: Option<&str>,
    settings: &AgentSettings,
) -> Result<OutputFormat, ApiError> {
    let profile = profile.unwrap_or(&settings.ai_sdk_profile);
    response::output_format(&ai_sdk::FORMAT, profile, settings.ai_sdk_options.iter().map(String::as_str))
}
