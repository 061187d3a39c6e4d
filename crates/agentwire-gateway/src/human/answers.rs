//! The answers that a request brings to what its thread waits for.
//!
//! Every protocol answers in its own way. Here all of them become entries of `resume` and results of tools, which are
//! checked before anything is done: known, open, in time, as the schema says, and all that must be answered together.
//! What reaches the agent is what was checked, and nothing else.

use std::collections::HashMap;

use agentwire_core::{
    event::{InterruptId, Message, MessageBody, ResumeEntry, ResumeStatus, Role, RunInput, ToolCallId},
    format::hai,
    json::Json,
};
use agentwire_store::{Answer, AnswerSet, Pending, Time};
use serde_json::{Value, json};

use crate::{
    agent::answered_calls,
    codes,
    error::ApiError,
    human::{
        approval,
        pending::{self, APPROVAL, FRONTEND_TOOL, LONG_RUNNING_TOOL},
    },
};

/// The answers that a request brings to what the thread waits for or waited for.
///
/// Every open interrupt must be answered at once. A client sends old tool results along with the conversation, so beside
/// those that something waits for only those at its end count, and of these not the ones that the agent gave itself
/// (`settled`). Where some answers are new, those given before are left out; if none is, it is the same
/// request again, and the store says what became of it. What answers nothing is left out too, if something else does.
///
/// # Errors
/// When an answer is for nothing known, too late, or not what was asked for, or when one is missing.
pub(crate) fn answers(
    input: &mut RunInput,
    items: &[Pending],
    settled: &HashMap<ToolCallId, usize>,
    now: Time,
    by: &str,
) -> Result<Option<AnswerSet>, ApiError> {
    // An id that was used again means the last one.
    let find = |id: &str| items.iter().rev().find(|item| item.id.as_str() == id);
    let is_late = |item: &Pending| item.expires.is_some_and(|expires| expires <= now);
    let is_open = |item: &Pending| item.answer.is_none() && !is_late(item);
    let mut given: Vec<Answer> = Vec::new();

    let entries = input.resume.as_deref().unwrap_or_default();
    let mut known: Vec<ResumeEntry> = Vec::new();
    let mut unknown = Vec::new();
    for entry in entries {
        let Some(item) = find(&entry.interrupt).filter(|item| *item.kind != *FRONTEND_TOOL) else {
            unknown.push(&entry.interrupt);
            continue;
        };
        // What is said twice in one request counts once, unless nobody can tell which is meant.
        if let Some(first) = entries.iter().find(|other| other.interrupt == entry.interrupt)
            && !std::ptr::eq(first, entry)
        {
            if first.status == entry.status && first.payload == entry.payload {
                continue;
            }
            let message = format!("`{}` is answered twice in one request, and differently", item.id);
            return Err(ApiError::new(codes::BAD_REQUEST, message));
        }
        known.push(approval::remembering(entry, item));
        let payload = entry.payload.as_ref().map(Json::to_value);
        let resolved = entry.status == ResumeStatus::Resolved;
        if item.answer.is_none() && is_late(item) {
            if resolved {
                return Err(ApiError::new(codes::INTERRUPT_EXPIRED, format!("`{}` has expired", item.id)));
            }
            // What was never answered and is given up is over either way.
            continue;
        }
        if resolved && item.answer.is_none() {
            super::schema::check(item, payload.as_ref())?;
        }
        let status = if resolved { "resolved" } else { "cancelled" };
        let body = json!({"status": status, "payload": payload}).to_string();
        given.push(Answer { id: entry.interrupt.as_str().into(), body: body.into() });
    }

    let mut results = last_results(input);
    // Who answers and goes on in one breath has their own words at the end, and the results before them.
    for item in items.iter().filter(|item| is_open(item) && is_call(item)) {
        let is_known = results.iter().any(|(call, ..)| call.as_str() == item.id.as_str());
        if !is_known && (!is_asked_again(item, items) || is_made(input, item.id.as_str())) {
            results.extend(result_behind(&input.messages, item.id.as_str()));
        }
    }
    let mut strangers = Vec::new();
    for (call, content, error) in &results {
        if find(call).is_none() {
            strangers.extend((!settled.contains_key(call)).then(|| call.clone()));
        } else if given.iter().all(|other| other.id.as_str() != call.as_str()) {
            let body = json!({"content": content, "error": error}).to_string();
            given.push(Answer { id: call.as_str().into(), body: body.into() });
        }
    }
    if known.is_empty() && given.is_empty() {
        if let Some(first) = unknown.first() {
            return Err(ApiError::new(codes::UNKNOWN_INTERRUPT, format!("no such interrupt: `{first}`")));
        }
        if let Some(first) = strangers.first() {
            let message = format!("nothing waits for the result of `{first}`");
            return Err(ApiError::new(codes::UNKNOWN_TOOL_CALL, message));
        }
    }
    for interrupt in unknown {
        tracing::warn!(%interrupt, thread = %input.thread, "an answer to an unknown interrupt was ignored");
    }

    let is_given = |item: &Pending| given.iter().any(|answer| answer.id == item.id);
    let open: Vec<_> = pending::current(items).filter(|item| is_open(item)).collect();
    if let Some(missing) = open.iter().find(|item| must_be_answered(item) && !is_given(item)) {
        return Err(unanswered(missing.id.as_str()));
    }
    if input.resume.as_ref().is_some_and(Vec::is_empty) && results.is_empty() && !open.is_empty() {
        return Err(ApiError::new(codes::NO_TOOL_RESULTS, "the thread waits for the results of tools"));
    }
    let is_new = |id: &str| find(id).is_some_and(is_open);
    if given.iter().any(|answer| is_new(answer.id.as_str())) {
        given.retain(|answer| is_new(answer.id.as_str()));
        // What was given up too late is still told; what was answered before is not answered again.
        known.retain(|entry| find(&entry.interrupt).is_some_and(|item| item.answer.is_none()));
    }
    if !known.is_empty() || input.resume.is_some() {
        let carried = known.iter().filter_map(|entry| find(&entry.interrupt)).flat_map(approval::carried);
        let carried: Vec<_> = carried.collect();
        known.extend(carried);
        input.resume = Some(known).filter(|known| !known.is_empty());
    }
    forget(input, &strangers);
    // What waits elsewhere is checked there too, and answered there alone.
    given.retain(|answer| find(answer.id.as_str()).is_some_and(|item| !pending::is_elsewhere(item)));
    forget_guarded(input, items);
    Ok((!given.is_empty()).then(|| AnswerSet { answers: given, by: by.into() }))
}

/// Whether a request brings an answer, to whatever.
pub(crate) fn answers_something(input: &RunInput) -> bool {
    input.resume.as_ref().is_some_and(|entries| !entries.is_empty())
        || answered_calls(&input.messages).next().is_some()
        || old_answer(input).is_some()
}

/// Whether a request's conversation ends with a result that nothing here waits or waited for.
pub(crate) fn has_unasked_result(input: &RunInput, items: &[Pending]) -> bool {
    let is_item = |call: &ToolCallId| items.iter().any(|item| item.id.as_str() == call.as_str());
    answered_calls(&input.messages).any(|call| !is_item(call))
}

/// Whether nothing else can be asked while an item is open. A front end may leave a tool of its own alone.
pub(crate) fn must_be_answered(item: &Pending) -> bool {
    *item.kind != *FRONTEND_TOOL
}

/// Says that an item is open and was not answered.
pub(crate) fn unanswered(item: &str) -> ApiError {
    ApiError::new(codes::INTERRUPT_UNANSWERED, format!("the thread waits for an answer to `{item}`"))
        .hint("answer all of `GET /threads/{id}/pending` in one request")
}

/// A result of a tool: the call, the content, the error.
type Given = (ToolCallId, String, Option<Box<str>>);

fn result_of(message: &Message) -> Option<Given> {
    match &message.body {
        MessageBody::Tool { call, content, error } => Some((call.clone(), content.text(), error.clone())),
        _ => None,
    }
}

/// The results of tools at the end of a conversation, the last one first.
fn last_results(input: &RunInput) -> Vec<Given> {
    let mut found: Vec<Given> = Vec::new();
    for message in input.messages.iter().rev() {
        match (result_of(message), &message.body) {
            (Some(result), _) if found.iter().all(|(call, ..)| *call != result.0) => found.push(result),
            (Some(_), _) | (_, MessageBody::Activity { .. } | MessageBody::Reasoning { .. }) => {}
            _ => break,
        }
    }
    found
}

/// The result that a conversation has of a call: behind the call itself, whose id may have been used before.
fn result_behind(messages: &[Message], call: &str) -> Option<Given> {
    let made = |message: &Message| message.tool_calls().iter().any(|made| made.id.as_str() == call);
    let from = messages.iter().rposition(made).map_or(0, |place| place + 1);
    messages[from..].iter().rev().filter_map(result_of).find(|(known, ..)| known.as_str() == call)
}

/// Whether what is open is a call, whose result is no answer to a question.
fn is_call(item: &Pending) -> bool {
    *item.kind == *FRONTEND_TOOL || *item.kind == *LONG_RUNNING_TOOL
}

/// Whether the same was asked and answered before: a node of LangGraph's that asks until it likes the answer asks under
/// one id. An answer that is not at the end of the conversation may then be the old one.
fn is_asked_again(item: &Pending, items: &[Pending]) -> bool {
    items.iter().any(|other| other.id == item.id && other.answer.is_some())
}

/// Whether a conversation has a call.
fn is_made(input: &RunInput, call: &str) -> bool {
    input.messages.iter().flat_map(|message| message.tool_calls()).any(|made| made.id.as_str() == call)
}

/// Leaves out results of calls about which somebody is asked. Whoever may run such a call does so when the answer is
/// yes, and until then nobody has: a result that a client sends along would be believed, whatever the answer is.
fn forget_guarded(input: &mut RunInput, items: &[Pending]) {
    let asked = items.iter().filter(|item| item.answer.is_none());
    for item in asked {
        let Some(call) = guarded(item).filter(|call| call != item.id.as_str()) else { continue };
        while let Some(forged) = result_behind(&input.messages, &call) {
            let is_forged = |message: &Message| result_of(message).as_ref() == Some(&forged);
            let Some(place) = input.messages.iter().rposition(is_forged) else { break };
            input.messages.remove(place);
        }
    }
}

/// Leaves out results of calls that nobody made: neither the thread nor the conversation that the client sent knows them.
fn forget(input: &mut RunInput, strangers: &[ToolCallId]) {
    let forged: Vec<_> = strangers.iter().filter(|call| !is_made(input, call)).cloned().collect();
    input
        .messages
        .retain(|message| !matches!(&message.body, MessageBody::Tool { call, .. } if forged.contains(call)));
}

/// Takes the results of tools that answer a question as such an answer: in HAI every question looks like a call of a
/// tool, and an AI SDK page may give a tool that waits its output. The whole conversation comes along with every
/// request, so what was answered before counts only at its end, where it is the same answer once more.
pub(crate) fn take_results(input: &mut RunInput, items: &[Pending]) {
    take(input, items, |item| *item.kind != *FRONTEND_TOOL);
}

/// The same for AG-UI, where the result of a long-running tool is a result, and stays in the conversation as one.
pub(crate) fn take_questions(input: &mut RunInput, items: &[Pending]) {
    take(input, items, |item| *item.kind != *FRONTEND_TOOL && *item.kind != *LONG_RUNNING_TOOL);
}

fn take(input: &mut RunInput, items: &[Pending], is_question: impl Fn(&Pending) -> bool) {
    let last = last_results(input);
    let is_meant = |item: &&Pending| {
        let is_last = last.iter().any(|(call, ..)| call.as_str() == item.id.as_str());
        is_question(item) && (is_last || (item.answer.is_none() && !is_asked_again(item, items)))
    };
    let asked: Vec<_> = items.iter().filter(is_meant).collect();
    let meant: Vec<_> = asked.iter().map(|item| InterruptId::from(item.id.as_str())).collect();
    let said: Vec<Given> = input.messages.iter().filter_map(result_of).collect();
    let known: Vec<_> = input.resume.iter().flatten().map(|entry| entry.interrupt.clone()).collect();
    hai::input::move_answers_to_resume(input, &meant);
    for entry in input.resume.iter_mut().flatten().filter(|entry| !known.contains(&entry.interrupt)) {
        let item = asked.iter().rev().find(|item| item.id.as_str() == entry.interrupt.as_str());
        let text = said.iter().rfind(|(call, ..)| call.as_str() == entry.interrupt.as_str());
        if let (Some(item), Some((_, text, None))) = (item, text) {
            entry.payload = Some(Json::from(super::schema::meant(item, text))).filter(|it| !it.is_null());
        }
    }
}

/// Takes what somebody answered before they said something else, where it is still asked.
pub(crate) fn take_earlier(input: &mut RunInput, earlier: Vec<ResumeEntry>, items: &[Pending], now: Time) {
    let is_open = |entry: &ResumeEntry| {
        let item = items.iter().rev().find(|item| item.id.as_str() == entry.interrupt.as_str());
        item.is_some_and(|item| item.answer.is_none() && item.expires.is_none_or(|until| until > now))
    };
    let open: Vec<_> = earlier.into_iter().filter(is_open).collect();
    if !open.is_empty() {
        input.resume.get_or_insert_default().extend(open);
    }
}

/// Whether somebody is asked about a call of the agent's.
pub(crate) fn asks_about_calls(items: &[Pending]) -> bool {
    items.iter().any(|item| {
        must_be_answered(item)
            && item.answer.is_none()
            && guarded(item).is_some_and(|call| call != item.id.as_str())
    })
}

/// Takes what a page gives as the output of a call about which somebody is asked as the answer. An approval of the AI SDK
/// has no room for anything but yes, no and a reason; an output has. Where a yes or no is asked for, it must say so, and
/// what is `stored` was said by the agent.
pub(crate) fn take_outputs(input: &mut RunInput, items: &[Pending], stored: &[Message]) {
    const MEMBERS: &[&str] = &["approved", "confirmed", "reason", "editedArgs", "payload"];
    let decides = |answer: &Value| {
        answer.as_object().is_some_and(|answer| {
            ["approved", "confirmed"].iter().any(|key| answer.get(*key).is_some_and(Value::is_boolean))
                && answer.keys().all(|key| MEMBERS.contains(&key.as_str()))
        })
    };
    let is_stored = |call: &ToolCallId, text: &str| {
        stored.iter().any(|message| {
            matches!(&message.body, MessageBody::Tool { call: known, content, .. }
                if known == call && content.text() == text)
        })
    };
    // An agent may say something between its call and its end, so the output need not be the last word; nor need
    // the person be silent who gives it.
    let is_user = |message: &&Message| message.role() == Role::User;
    let said = input.messages.iter().rev().skip_while(is_user).take_while(|message| !is_user(message));
    let results: Vec<_> = said.filter_map(result_of).collect();
    let mut answered = Vec::new();
    for (call, content, error) in results {
        let asks = |item: &&Pending| {
            must_be_answered(item)
                && item.answer.is_none()
                && item.id.as_str() != call.as_str()
                && guarded(item).as_deref() == Some(call.as_str())
        };
        let Some(item) = items.iter().rev().find(asks) else { continue };
        if error.is_some() || is_stored(&call, &content) {
            continue;
        }
        let answer = super::schema::meant(item, &content);
        if *item.kind != *APPROVAL || decides(&answer) {
            answered.push((call, item.id.as_str(), answer));
        }
    }
    for (call, interrupt, answer) in answered {
        input.messages.retain(
            |message| !matches!(&message.body, MessageBody::Tool { call: answered, .. } if *answered == call),
        );
        input.resume.get_or_insert_default().push(ResumeEntry {
            interrupt: interrupt.into(),
            status: ResumeStatus::Resolved,
            payload: Some(Json::from(answer)).filter(|answer| !answer.is_null()),
            metadata: None,
        });
    }
}

/// The call that an item asks about.
fn guarded(item: &Pending) -> Option<String> {
    let body: Value = serde_json::from_str(&item.body).ok()?;
    body.get("toolCallId")?.as_str().map(str::to_owned)
}

/// Leaves out the results that answered a question long ago.
pub(crate) fn forget_results(input: &mut RunInput, items: &[Pending]) {
    let is_question = |call: &ToolCallId| {
        items.iter().any(|item| *item.kind != *FRONTEND_TOOL && item.id.as_str() == call.as_str())
    };
    input
        .messages
        .retain(|message| !matches!(&message.body, MessageBody::Tool { call, .. } if is_question(call)));
}

/// What old user interfaces send as an answer: `forwardedProps.command.resume`.
fn old_answer(input: &RunInput) -> Option<Json> {
    let command = input.forwarded.clone()?.into_object()?.member("command")?;
    command.into_object()?.member("resume")
}

/// Old user interfaces answer the one open question by `forwardedProps.command.resume`, or several by an object with
/// the answer to each under its id.
pub(crate) fn take_old_answer(input: &mut RunInput, items: &[Pending]) {
    let open: Vec<_> = pending::current(items)
        .filter(|item| item.answer.is_none() && *item.kind != *FRONTEND_TOOL)
        .map(|item| InterruptId::from(item.id.as_str()))
        .collect();
    let (None, Some(answer)) = (&input.resume, old_answer(input)) else { return };
    let entry = |interrupt: &InterruptId, answer: Json| ResumeEntry {
        interrupt: interrupt.clone(),
        status: ResumeStatus::Resolved,
        payload: Some(answer).filter(|answer| !answer.is_null()),
        metadata: None,
    };
    let by_id = |answer: &Json| {
        let answers = answer.clone().into_object()?;
        open.iter().map(|id| Some(entry(id, answers.member(id)?))).collect::<Option<Vec<_>>>()
    };
    input.resume = match &open[..] {
        [] => None,
        [only] => Some(by_id(&answer).unwrap_or_else(|| vec![entry(only, answer)])),
        _ => by_id(&answer),
    };
}

/// Whether a request brings no answer to anything that is open, by itself or in the old way.
pub(crate) fn answers_nothing(input: &RunInput, items: &[Pending], now: Time) -> bool {
    let is_open = |item: &Pending| item.answer.is_none() && item.expires.is_none_or(|until| until > now);
    match &input.resume {
        Some(entries) if !entries.is_empty() => false,
        Some(_) => !items.iter().any(is_open),
        None => {
            old_answer(input).is_none() || !items.iter().any(|item| is_open(item) && must_be_answered(item))
        }
    }
}
