//! The history of a thread for `useChat`: the messages that a page would hold if it had followed all runs itself.
//!
//! Stored messages have no place for data parts, step starts and decisions. So each assistant message is built from the
//! logs of its runs, by the writer that streams them and by the rules of the SDK's client. Where a log is gone, or does
//! not cover the message, the stored messages are shown.

use std::collections::HashSet;

use agentwire_core::{
    Tally,
    event::{RunId, RunInput, ThreadId},
    format::{
        ag_ui,
        ai_sdk::{self, ClientMessage},
    },
    framing::{Frames, Framing},
};
use agentwire_store::{Log, Run, StoreError};
use bytes::Bytes;
use serde_json::Value;

use super::{ai_sdk::output_format_with, request::ApiRequest};
use crate::{cpu_work, error::ApiError, stream::output::EventEncoder};

/// The number of runs that are read at once from the list of a thread.
const PAGE: usize = 100;

/// The number of runs whose logs are read: the newest ones. A page with more messages loads them from the stored ones.
const MAX_RUNS: usize = 500;

/// The bytes of a log that are read at once.
const SLICE: usize = 1 << 20;

/// A message of a run, and the user message that the run replied to.
struct StreamedMessage {
    message: ClientMessage,
    replies_to: Option<Box<str>>,
}

/// Replaces the assistant messages of `stored`, a list of UI messages, by those that were streamed. While a run is
/// active (`is_live`), its message is not shown, and no other one is added.
pub(super) async fn with_streamed_messages(
    request: &ApiRequest,
    thread: &ThreadId,
    stored: String,
    profile: &str,
    version: u8,
    is_live: bool,
) -> Result<String, ApiError> {
    let (owner, length) = (&request.owner, stored.len());
    let parse = || serde_json::from_str(&stored);
    let Ok(Value::Array(mut messages)) = cpu_work::in_place_by_length(owner, length, parse).await else {
        return Ok(stored);
    };
    for StreamedMessage { message, replies_to } in
        streamed_messages(request, thread, profile, version).await?
    {
        let known =
            messages.iter().position(|known| known["id"] == message.id() && known["role"] == "assistant");
        if let Some(index) = known {
            if covers(&message.to_value(), &messages[index]) {
                messages[index] = message.to_value();
            }
            continue;
        }
        // A run without messages, such as one that only emitted data.
        let question = replies_to.and_then(|id| messages.iter().position(|known| known["id"] == *id));
        if let Some(question) = question
            && !is_live
            && message.has_parts()
            && messages.get(question + 1).is_none_or(|next| next["role"] != "assistant")
        {
            messages.insert(question + 1, message.to_value());
        }
    }
    let write = move || Value::Array(messages).to_string();
    Ok(cpu_work::in_place_by_length(owner, length, write).await)
}

/// True if a streamed message has the text and the calls of the stored one.
fn covers(streamed: &Value, stored: &Value) -> bool {
    let parts = |message: &Value| message["parts"].as_array().cloned().unwrap_or_default();
    let text = |message: &Value| -> String {
        let parts = parts(message);
        parts.iter().filter(|part| part["type"] == "text").filter_map(|part| part["text"].as_str()).collect()
    };
    let calls = |message: &Value| -> HashSet<String> {
        parts(message).iter().filter_map(|part| part["toolCallId"].as_str().map(str::to_owned)).collect()
    };
    text(streamed) == text(stored) && calls(stored).is_subset(&calls(streamed))
}

/// The messages that the ended runs of a thread streamed, oldest first.
async fn streamed_messages(
    request: &ApiRequest,
    thread: &ThreadId,
    profile: &str,
    version: u8,
) -> Result<Vec<StreamedMessage>, ApiError> {
    let (store, owner) = (request.state.gateway.store(), &request.owner);
    let mut runs: Vec<Run> = Vec::new();
    let mut before = None;
    loop {
        let page = match store.runs(owner, thread, before, PAGE).await {
            // The thread exists on the agent's side only.
            Err(StoreError::NotFound(_)) => break,
            page => page?,
        };
        runs.extend(page.items);
        before = page.next;
        if before.is_none() || runs.len() >= MAX_RUNS {
            break;
        }
    }
    let mut messages: Vec<StreamedMessage> = Vec::new();
    for run in runs.iter().rev().filter(|run| !run.status.is_live()) {
        let Some(input) = run_input(request, &run.run).await? else { continue };
        let continued = ai_sdk::input::continued_turn(&input)
            .and_then(|id| messages.iter().position(|known| known.message.id() == &*id));
        let id = continued.map(|index| messages[index].message.id().to_owned());
        let Some(chunks) = chunks(request, thread, run, &input, profile, id.as_deref()).await? else {
            continue;
        };
        let add = |message: &mut ClientMessage| chunks.iter().for_each(|chunk| message.push(chunk));
        match continued {
            Some(index) => {
                let message = &mut messages[index].message;
                message.answer(&input);
                add(message);
            }
            None => {
                let mut message = ClientMessage::new(version);
                add(&mut message);
                messages
                    .push(StreamedMessage { message, replies_to: ai_sdk::input::last_user_message(&input) });
            }
        }
    }
    Ok(messages)
}

/// The request that started a run; `None` if it is no longer stored.
async fn run_input(request: &ApiRequest, run: &RunId) -> Result<Option<RunInput>, ApiError> {
    let text = match request.state.gateway.store().input(&request.owner, run).await {
        Err(StoreError::NotFound(_)) => None,
        text => text?,
    };
    let Some(text) = text else { return Ok(None) };
    let parse = || ag_ui::input::from_json(&text, &mut Tally::default()).ok();
    Ok(cpu_work::in_place_by_length(&request.owner, text.len(), parse).await)
}

/// The chunks of a run; `None` if its log is not complete. `message` is the id of the message that it continues.
async fn chunks(
    request: &ApiRequest,
    thread: &ThreadId,
    run: &Run,
    input: &RunInput,
    profile: &str,
    message: Option<&str>,
) -> Result<Option<Vec<Value>>, ApiError> {
    let output_format = output_format_with(profile, &request.state.agent.settings, message)?;
    let gateway = &request.state.gateway;
    let encoder = EventEncoder::new(gateway, &request.owner, thread, &run.run, Some(input), &output_format);
    let mut encoder = encoder.await?;
    let mut frames = Frames::new(Framing::Lines);
    let mut add = |events: &[Bytes]| {
        for event in events {
            encoder.encode(event, true, &mut frames);
            frames.finish_event(None);
        }
    };
    let mut after = None;
    loop {
        match gateway.store().read(&request.owner, &run.run, after, SLICE).await {
            Ok(Log::Exact(slice)) => {
                if after.is_none() && slice.first_seq.0 != 0 {
                    return Ok(None);
                }
                add(&slice.events);
                let next = slice.first_seq.plus(slice.events.len());
                if slice.events.is_empty() || next >= slice.next_seq {
                    break;
                }
                after = Some(agentwire_store::Seq(next.0 - 1));
            }
            Ok(Log::Compacted { events, .. }) if after.is_none() => {
                add(&events);
                break;
            }
            Ok(_) | Err(StoreError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    let bytes = frames.take();
    let lines = bytes.split(|byte| *byte == b'\n');
    Ok(Some(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()))
}
