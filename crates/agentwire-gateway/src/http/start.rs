//! The routes that start runs: AG-UI, HAI, AI SDK.

use agentwire_core::{
    Tally,
    event::{Body, Event, RunError, RunFinished, RunId, RunInput, RunStarted, ThreadId},
    format::{ag_ui, ai_sdk, hai},
    json::Json,
};
use agentwire_store::{Pending, StoreError, Which};
use axum::{
    extract::{RawPathParams, Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};

use super::{Mount, answer, call::Call, cursor::Cursor, json};
use crate::{
    admit::Wish, audit::Record, code, follow::Face, live::Command, opening::messages_of, pending,
    refusal::Refusal,
};

/// `POST` on the main path: AG-UI.
pub(crate) async fn ag_ui(
    State(mount): State<Mount>,
    params: RawPathParams,
    request: Request,
) -> Result<Response, Refusal> {
    let call = Call::with_json(&mount, &params, request).await?;
    let mut input = ag_ui::input::from_json(call.text()?, &mut Tally::default())?;
    rename(&call, &mut input);
    let face = answer::ag_ui_face(&call.parts.headers);
    run(&mount, &call, input, face).await
}

/// `POST /awp` and `POST /chat`: HAI.
pub(crate) async fn hai(
    State(mount): State<Mount>,
    params: RawPathParams,
    request: Request,
) -> Result<Response, Refusal> {
    let call = Call::with_json(&mount, &params, request).await?;
    let gateway = &mount.gateway;
    let (thread, run_id) = (gateway.new_id("thread"), gateway.new_id("run"));
    let mut input =
        hai::input::from_json(call.text()?, &thread.into(), &run_id.into(), &mut Tally::default())?;
    rename(&call, &mut input);
    let items = items(&mount, &call, &input.thread).await?;
    pending::take_results(&mut input, &items);
    // What stood for a question is no call of the agent's.
    pending::forget_results(&mut input, &items);
    let face = answer::hai_face(&call.parts.headers, &mount.agent.settings, Some(&input))?;
    run(&mount, &call, input, face).await
}

/// `POST /api/chat`: AI SDK.
pub(crate) async fn ai_sdk(
    State(mount): State<Mount>,
    params: RawPathParams,
    request: Request,
) -> Result<Response, Refusal> {
    let call = Call::with_json(&mount, &params, request).await?;
    let gateway = &mount.gateway;
    let (thread, run_id) = (gateway.new_id("thread"), gateway.new_id("run"));
    // A client that wants to be sure sends a key; the same key is the same run.
    let run_id = call
        .header("idempotency-key")
        .filter(|key| !key.is_empty())
        .map_or(run_id, |key| format!("key-{key}"));
    let ai_sdk::input::Request { mut input, trigger, message, .. } =
        ai_sdk::input::from_json(call.text()?, thread, run_id, &mut Tally::default())?;
    rename(&call, &mut input);
    let items = items(&mount, &call, &input.thread).await?;
    pending::take_results(&mut input, &items);
    let face = answer::ai_sdk_face(call.query("profile").as_deref(), &mount.agent.settings)?;
    // An answer that is wanted anew replaces what came after the last message that the client still has; an edit likewise.
    let is_edit = message.is_some_and(|id| input.messages.last().is_some_and(|last| last.id == id));
    let anew = trigger == ai_sdk::input::Trigger::Regenerate || is_edit;
    let cut = if anew { input.messages.last().map(|last| last.id.clone()) } else { None };
    let wish = Wish {
        agent: mount.agent.clone(),
        owner: call.owner.clone(),
        input: input.clone(),
        cut,
        headers: call.forwarded(&mount),
    };
    let run = mount.gateway.admit(wish).await?;
    answer::follow(&mount, &call, &run, None, Some(&input), face).await
}

/// `GET /api/chat/{id}/stream`: the answer that is going on, from its start, or 204.
pub(crate) async fn ai_sdk_resume(
    State(mount): State<Mount>,
    params: RawPathParams,
    request: Request,
) -> Result<Response, Refusal> {
    let call = Call::without_body(&mount, &params, request)?;
    let face = answer::ai_sdk_face(call.query("profile").as_deref(), &mount.agent.settings)?;
    match active_run(&mount, &call).await? {
        Some(run) => answer::follow(&mount, &call, &run, None, None, face).await,
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// `POST /api/chat/{id}/stop`: stops the answer that is going on. Twice is as good as once.
pub(crate) async fn ai_sdk_stop(
    State(mount): State<Mount>,
    params: RawPathParams,
    request: Request,
) -> Result<Response, Refusal> {
    let call = Call::without_body(&mount, &params, request)?;
    let Some(run) = active_run(&mount, &call).await? else {
        return Ok(json(r#"{"status":"idle"}"#));
    };
    super::runs::stop_run(&mount, &call.owner, &run).await?;
    Ok(json(r#"{"status":"stopped"}"#))
}

/// The run that has the thread of the path.
async fn active_run(mount: &Mount, call: &Call) -> Result<Option<RunId>, Refusal> {
    let thread = ThreadId::from(call.param("id"));
    match mount.gateway.store.lease(&call.owner, &thread).await {
        Ok(Some(lease)) if lease.live => Ok(Some(lease.run)),
        Ok(_) | Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The thread, if the settings say that it stands elsewhere than in the body.
fn rename(call: &Call, input: &mut RunInput) {
    if let Some(thread) = &call.thread {
        input.thread = thread.clone();
    }
}

/// What a thread waits for and has waited for.
async fn items(mount: &Mount, call: &Call, thread: &ThreadId) -> Result<Vec<Pending>, Refusal> {
    match mount.gateway.store.pending(&call.owner, thread, Which::All).await {
        Ok(items) => Ok(items),
        Err(StoreError::NotFound(_)) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Starts, joins or syncs, and answers in AG-UI or HAI, where a refused run is a stream.
async fn run(mount: &Mount, call: &Call, input: RunInput, face: Face) -> Result<Response, Refusal> {
    let cursor = Cursor::of(call)?;
    if let Some(cursor) = cursor.as_ref().filter(|cursor| cursor.run != input.run) {
        let message = format!("the cursor is of run `{}`, not of `{}`", cursor.run, input.run);
        return Err(Refusal::new(code::BAD_CURSOR, message));
    }
    let after = cursor.map(|cursor| cursor.seq);
    let asks_nothing = input.messages.is_empty() && input.resume.as_ref().is_none_or(Vec::is_empty);
    if asks_nothing {
        crate::admit::check_id("thread", &input.thread)?;
        crate::admit::check_id("run", &input.run)?;
        return match mount.gateway.store.run(&call.owner, &input.run).await {
            Ok(known) if known.thread == input.thread => {
                answer::follow(mount, call, &input.run, after, None, face).await
            }
            Ok(_) => Err(Refusal::new(code::RUN_ID_TAKEN, "the run id was used in another thread")),
            Err(StoreError::NotFound(_)) => {
                let events = sync(mount, call, &input).await?;
                Ok(answer::once(mount, &input.thread, &input.run, &events, &face))
            }
            Err(error) => Err(error.into()),
        };
    }
    let wish = Wish {
        agent: mount.agent.clone(),
        owner: call.owner.clone(),
        input: input.clone(),
        cut: None,
        headers: call.forwarded(mount),
    };
    match mount.gateway.admit(wish).await {
        Ok(run) => answer::follow(mount, call, &run, after, Some(&input), face).await,
        // The request is well formed and was understood, so it is answered in its own words.
        Err(refusal) if code::is_answer(refusal.code) => {
            let events = refused(mount, &input, &refusal);
            Ok(answer::once(mount, &input.thread, &input.run, &events, &face))
        }
        Err(refusal) => Err(refusal),
    }
}

fn refused(mount: &Mount, input: &RunInput, refusal: &Refusal) -> [Event; 2] {
    let now = i64::try_from(mount.gateway.store.now().0).ok();
    let started = RunStarted::new(input.thread.clone(), input.run.clone());
    let error = RunError::new(refusal.message.clone(), Some(refusal.code));
    [
        Event::new(Body::RunStarted(Box::new(started))).at(now),
        Event::new(Body::RunError(Box::new(error))).at(now),
    ]
}

/// What a client gets that asks for nothing: the conversation and the state as they are.
async fn sync(mount: &Mount, call: &Call, input: &RunInput) -> Result<Vec<Event>, Refusal> {
    let Held { messages, state } = Held::of(mount, call, &input.thread).await?.unwrap_or_default();
    let now = i64::try_from(mount.gateway.store.now().0).ok();
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
    pub(crate) state: String,
}

impl Default for Held {
    fn default() -> Self {
        Self { messages: "[]".into(), state: "{}".into() }
    }
}

impl Held {
    /// What clients of a thread hold now, while a run changes it or not; `None` if there is no such thread.
    pub(crate) async fn of(mount: &Mount, call: &Call, thread: &ThreadId) -> Result<Option<Self>, Refusal> {
        let gateway = &mount.gateway;
        gateway.audit.note(Record::new(&call.owner, "read").thread(thread));
        if let Some(live) = gateway.live_of_thread(&call.owner, thread).await {
            let (reply, snapshot) = tokio::sync::oneshot::channel();
            if live.commands.send(Command::Snapshot(reply)).await.is_ok()
                && let Ok(snapshot) = snapshot.await
            {
                return Ok(Some(Self { messages: snapshot.messages, state: snapshot.state }));
            }
        }
        let messages = match gateway.store.messages(&call.owner, thread).await {
            Ok(messages) => messages,
            Err(StoreError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let state = gateway.store.state(&call.owner, thread).await?;
        let default = Self::default();
        Ok(Some(Self {
            messages: messages.map_or(default.messages, |text| text.to_string()),
            state: state.body.map_or(default.state, |text| text.to_string()),
        }))
    }
}
