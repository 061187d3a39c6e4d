//! The routes that start runs: AG-UI, HAI, AI SDK.

use agentwire_core::{
    Tally,
    event::{Body, Event, Role, RunError, RunFinished, RunId, RunInput, RunStarted, ThreadId},
    format::{ag_ui, ai_sdk, hai},
    json::Json,
};
use agentwire_store::{Owner, StoreError};
use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{
    Mount,
    cursor::Cursor,
    json,
    request::{Call, Params, percent_decode},
    response,
};
use crate::{
    agent::Recalled,
    codes,
    error::ApiError,
    human::given::{self, AnswerProtocol},
    ops::audit::Record,
    run::{admission::RunRequest, input::messages_of},
    settings::History,
    stream::{
        live::{Command, Snapshot},
        reader::OutputFormat,
    },
};

/// `POST` on the main path: AG-UI.
pub(crate) async fn ag_ui(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::with_json(&mount, &params, request).await?;
    let read = || {
        let mut tally = Tally::default();
        understood(ag_ui::input::from_json(call.text()?, &mut tally)?, &tally)
    };
    let mut input = call.told(&mount, read())?;
    call.told(&mount, rename(&mount, &call, &mut input))?;
    let face = response::ag_ui_face(&call.parts.headers);
    let wish = wish(&mount, &call, input, AnswerProtocol::AgUi);
    run(&mount, &call, wish, face).await
}

/// `POST /awp` and `POST /chat`: HAI.
pub(crate) async fn hai(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::with_json(&mount, &params, request).await?;
    let gateway = &mount.gateway;
    let (thread, run_id) = (gateway.new_id("thread"), gateway.new_id("run"));
    let (thread, run_id) = (thread.into(), run_id.into());
    let read = || {
        let mut tally = Tally::default();
        understood(hai::input::from_json(call.text()?, &thread, &run_id, &mut tally)?, &tally)
    };
    let mut input = call.told(&mount, read())?;
    call.told(&mount, rename(&mount, &call, &mut input))?;
    let mut wish = wish(&mount, &call, input, AnswerProtocol::Hai);
    gateway.collect_answers(&mut wish).await?;
    let face = response::hai_face(&call.parts.headers, &mount.agent.settings, Some(&wish.input))?;
    run(&mount, &call, wish, face).await
}

/// `POST /api/chat`: AI SDK.
pub(crate) async fn ai_sdk(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::with_json(&mount, &params, request).await?;
    let gateway = &mount.gateway;
    let (thread, run_id) = (gateway.new_id("thread"), gateway.new_id("run"));
    // A client that wants to be sure sends a key; the same key is the same run.
    let run_id = call
        .header("idempotency-key")
        .filter(|key| !key.is_empty())
        .map_or(run_id, |key| format!("key-{key}"));
    let read = || Ok(ai_sdk::input::from_json(call.text()?, thread, run_id, &mut Tally::default())?);
    let ai_sdk::input::ChatRequest { mut input, trigger, message, earlier_answers: earlier, .. } =
        call.told(&mount, read())?;
    call.told(&mount, rename(&mount, &call, &mut input))?;
    let mut wish = wish(&mount, &call, input, AnswerProtocol::AiSdk { earlier });
    gateway.collect_answers(&mut wish).await?;
    // Clients see what they sent; the agent hears nothing twice.
    let input = wish.input.clone();
    if mount.agent.settings.history != History::Client && ai_sdk::input::has_unnamed_messages(&input) {
        let stored = gateway.stored_messages(&call.owner, &input.thread).await?;
        ai_sdk::input::remove_stored_messages(&mut wish.input, &stored);
    }
    let face = response::ai_sdk_face(call.query("profile").as_deref(), &mount.agent.settings)?;
    // An answer that is wanted anew replaces what came after the last message that the client still has; an edit likewise.
    let is_edit = message.is_some_and(|id| input.messages.last().is_some_and(|last| last.id == id));
    let is_question = input.messages.last().is_some_and(|last| last.role() == Role::User);
    let anew = match trigger {
        ai_sdk::input::Trigger::Regenerate => true,
        ai_sdk::input::Trigger::Unspecified => is_edit || is_question,
        _ => is_edit,
    };
    let cut = if anew { input.messages.last().map(|last| last.id.clone()) } else { None };
    let admission = mount.gateway.admit(RunRequest { cut, one_message: true, ..wish }).await?;
    response::follow(&mount, &call, admission.run(), None, Some(&input), face).await
}

/// `GET /api/chat/{id}/stream`: the answer that is going on, from its start, or 204.
pub(crate) async fn ai_sdk_resume(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let face = response::ai_sdk_face(call.query("profile").as_deref(), &mount.agent.settings)?;
    let resumed = resumed(&mount, &call, &call.param("id").into(), face).await?;
    Ok(resumed.unwrap_or_else(|| StatusCode::NO_CONTENT.into_response()))
}

/// `GET /api/chat?chatId=`: the same for `useChat` of version 4, which takes 204 for an error and an empty body for
/// nothing.
pub(crate) async fn ai_sdk_resume_4(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    // It puts `?chatId=` behind an address that may have a query already, and does not encode the id.
    let query = call.parts.uri.query().unwrap_or_default();
    let Some((before, thread)) = query.rsplit_once("chatId=") else {
        return Err(ApiError::new(codes::BAD_REQUEST, "`chatId` is missing, expected the id of a chat"));
    };
    let thread = thread.split('&').next().unwrap_or_default();
    let profile = before.split(['&', '?']).find_map(|pair| pair.strip_prefix("profile="));
    let face = response::ai_sdk_face(Some(profile.unwrap_or("4")), &mount.agent.settings)?;
    let (content_type, headers) = (face.profile.content_type, face.profile.headers);
    let resumed = resumed(&mount, &call, &percent_decode(thread).into(), face).await?;
    Ok(resumed.unwrap_or_else(|| {
        let mut nothing = [(header::CONTENT_TYPE, content_type)].into_response();
        for (name, value) in headers {
            nothing.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        nothing
    }))
}

/// The answer that is going on in a thread, from its start.
async fn resumed(
    mount: &Mount,
    call: &Call,
    thread: &ThreadId,
    mut face: OutputFormat,
) -> Result<Option<Response>, ApiError> {
    // The answer may have begun in an earlier run, before a tool of the front end or a person was asked.
    face.options = face.options.with_whole_message();
    match active_run(mount, call, thread).await? {
        Some(run) => Ok(Some(response::follow(mount, call, &run, None, None, face).await?)),
        None => Ok(None),
    }
}

/// `POST /api/chat/{id}/stop`: stops the answer that is going on. Twice is as good as once.
pub(crate) async fn ai_sdk_stop(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let Some(run) = active_run(&mount, &call, &call.param("id").into()).await? else {
        return Ok(json(r#"{"status":"idle"}"#));
    };
    let done = super::runs::stop_run(&mount, &call.owner, &run).await;
    mount.gateway.audit().note(Record::new(&call.owner, "stop").run(&run).outcome(&done));
    done?;
    Ok(json(r#"{"status":"stopped"}"#))
}

/// The run that has the thread.
async fn active_run(mount: &Mount, call: &Call, thread: &ThreadId) -> Result<Option<RunId>, ApiError> {
    match mount.gateway.store().lease(&call.owner, thread).await {
        Ok(Some(lease)) if lease.live => Ok(Some(lease.run)),
        Ok(_) | Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The thread, if the settings say that it stands elsewhere than in the body.
fn rename(mount: &Mount, call: &Call, input: &mut RunInput) -> Result<(), ApiError> {
    if let Some(thread) = call.thread(mount)? {
        input.thread = thread;
    }
    Ok(())
}

fn wish(mount: &Mount, call: &Call, input: RunInput, protocol: AnswerProtocol) -> RunRequest {
    RunRequest {
        agent: mount.agent.clone(),
        owner: call.owner.clone(),
        input,
        protocol,
        cut: None,
        headers: call.forwarded(mount),
        one_message: false,
        body: call.body.clone(),
        items: None,
        given: None,
        answers: None,
    }
}

/// The input, unless nothing that was said in it could be read: that is no wish to be told the state.
fn understood(input: RunInput, tally: &Tally) -> Result<RunInput, ApiError> {
    let unknown = tally.iter().find(|(what, ..)| *what == "unknown role");
    match unknown.filter(|_| input.messages.is_empty()) {
        Some((_, role, _)) => {
            let message =
                format!("no message at `/messages` has a known role, found `{}`", role.escape_default());
            Err(ApiError::new(codes::BAD_REQUEST, message))
        }
        None => Ok(input),
    }
}

/// Starts, joins or syncs, and answers in AG-UI or HAI, where a refused run is a stream.
async fn run(
    mount: &Mount,
    call: &Call,
    mut wish: RunRequest,
    face: OutputFormat,
) -> Result<Response, ApiError> {
    let input = wish.input.clone();
    let cursor = Cursor::of(call)?;
    if let Some(cursor) = cursor.as_ref().filter(|cursor| cursor.run != input.run) {
        let message = format!("the cursor is of run `{}`, not of `{}`", cursor.run, input.run);
        return Err(ApiError::new(codes::BAD_CURSOR, message));
    }
    let after = cursor.map(|cursor| cursor.seq);
    // An empty answer is one, if there is something to answer.
    let is_sync = input.messages.is_empty() && {
        mount.gateway.load_items(&mut wish).await?;
        let items = wish.items.as_deref().unwrap_or_default();
        given::has_no_answer(&wish.input, wish.given.as_ref(), items, mount.gateway.store().now())
    };
    if is_sync {
        crate::run::admission::check_id("thread", &input.thread)?;
        crate::run::admission::check_id("run", &input.run)?;
        return match mount.gateway.store().run(&call.owner, &input.run).await {
            Ok(known) if known.thread == input.thread => {
                response::follow(mount, call, &input.run, after, None, face).await
            }
            Ok(_) => Err(ApiError::new(codes::RUN_ID_TAKEN, "the run id was used in another thread")),
            Err(StoreError::NotFound(_)) => {
                let events = sync(mount, call, &input).await?;
                Ok(response::once(mount, &input.thread, &input.run, &events, &face))
            }
            Err(error) => Err(error.into()),
        };
    }
    match mount.gateway.admit(wish).await {
        Ok(admission) => response::follow(mount, call, admission.run(), after, Some(&input), face).await,
        // The request is well formed and was understood, so it is answered in its own words.
        Err(refusal) if codes::is_answer(refusal.code) => {
            let events = refused(mount, &input, &refusal);
            Ok(response::once(mount, &input.thread, &input.run, &events, &face))
        }
        Err(refusal) => Err(refusal),
    }
}

fn refused(mount: &Mount, input: &RunInput, refusal: &ApiError) -> [Event; 2] {
    let now = i64::try_from(mount.gateway.store().now().0).ok();
    let started = RunStarted::new(input.thread.clone(), input.run.clone());
    let error = RunError::new(refusal.message.clone(), Some(refusal.code));
    [
        Event::new(Body::RunStarted(Box::new(started))).at(now),
        Event::new(Body::RunError(Box::new(error))).at(now),
    ]
}

/// What a client gets that asks for nothing: the conversation and the state as they are.
async fn sync(mount: &Mount, call: &Call, input: &RunInput) -> Result<Vec<Event>, ApiError> {
    let Held { messages, state, .. } = Held::of(mount, call, &input.thread).await?.unwrap_or_default();
    let now = i64::try_from(mount.gateway.store().now().0).ok();
    let bodies = [
        Body::RunStarted(Box::new(RunStarted::new(input.thread.clone(), input.run.clone()))),
        Body::MessagesSnapshot { messages: messages_of(&messages) },
        Body::StateSnapshot { snapshot: Json::parse(&state).unwrap_or_else(|_| Json::null()) },
        Body::RunFinished(Box::new(RunFinished::new(input.thread.clone(), input.run.clone()))),
    ];
    Ok(bodies.into_iter().map(|body| Event::new(body).at(now)).collect())
}

/// What clients of a thread hold, as JSON.
pub(crate) struct Held {
    pub(crate) messages: String,
    /// The messages that the run began with, while one goes on.
    pub(crate) began: Option<String>,
    pub(crate) state: String,
}

impl Default for Held {
    fn default() -> Self {
        Self { messages: "[]".into(), began: None, state: "{}".into() }
    }
}

impl Held {
    /// What clients of a thread hold now, while a run changes it or not; `None` if there is no such thread.
    pub(crate) async fn of(mount: &Mount, call: &Call, thread: &ThreadId) -> Result<Option<Self>, ApiError> {
        let held = match Self::unnoticed(mount, &call.owner, thread).await {
            Ok(None) => Self::recalled(mount, call, thread).await,
            held => held,
        };
        let unknown = || ApiError::new(codes::UNKNOWN_THREAD, "no such thread");
        let found = held.as_ref().map_err(ApiError::clone).and_then(|it| it.as_ref().ok_or_else(unknown));
        mount.gateway.audit().note(Record::new(&call.owner, "read").thread(thread).outcome(&found));
        held
    }

    /// What is stored here, for the gateway itself, which needs no record of what it reads.
    pub(crate) async fn unnoticed(
        mount: &Mount,
        owner: &Owner,
        thread: &ThreadId,
    ) -> Result<Option<Self>, ApiError> {
        let gateway = &mount.gateway;
        if let Some(live) = gateway.live_run_of_thread(owner, thread).await {
            let (reply, snapshot) = tokio::sync::oneshot::channel();
            if live.commands.send(Command::Snapshot(reply)).await.is_ok()
                && let Ok(snapshot) = snapshot.await
            {
                let Snapshot { messages, began, state, .. } = snapshot;
                return Ok(Some(Self { messages, began: Some(began), state }));
            }
        }
        let messages = match gateway.store().messages(owner, thread).await {
            Ok(messages) => messages,
            Err(StoreError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let state = gateway.store().state(owner, thread).await?;
        let default = Self::default();
        Ok(Some(Self {
            messages: messages.map_or(default.messages, |text| text.to_string()),
            began: None,
            state: state.body.map_or(default.state, |text| text.to_string()),
        }))
    }

    /// What the agent's side holds of a thread that was never run here.
    async fn recalled(mount: &Mount, call: &Call, thread: &ThreadId) -> Result<Option<Self>, ApiError> {
        let Some(recalled) = mount.agent.agent.recall(mount.thread_request(call, thread)) else {
            return Ok(None);
        };
        Ok(recalled.await?.map(|Recalled { messages, state, .. }| Self {
            messages: ag_ui::messages_to_json(&messages),
            began: None,
            state: state.get().to_owned(),
        }))
    }
}
