//! Pending items: made at the end of a run, read for a request, shown to clients.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use agentwire_core::{
    event::{
        Interrupt, Message, MessageBody, Outcome, Role, RunId, RunInput, ThreadId, ToolCall, ToolCallId,
    },
    fold::Fold,
    format::ag_ui,
    json::Object,
};
use agentwire_store::{
    Answer, NewPending, Owner, Pending, PendingFilter, PendingId, RecordedAnswer, StoreError, Time,
};
use serde_json::{Value, json};

use super::{
    approval::{self, Gated},
    canonical, given,
};
use crate::{
    agent,
    error::ApiError,
    gateway::{AgentEntry, Gateway},
    timestamp::{iso, parse_iso},
};

/// The kind of a question whether a call or an action is allowed.
pub(crate) const APPROVAL: &str = "approval";
/// The kind of a call of the agent's whose result comes from outside, later.
pub(crate) const LONG_RUNNING_TOOL: &str = "long-running-tool";
/// The kind of any other interrupt.
const INTERRUPT: &str = "interrupt";
/// The kind of a call of a tool that the front end runs.
pub(crate) const FRONTEND_TOOL: &str = "frontend-tool";

/// The most items that one run may leave open: some graphs ask a question in each of a few hundred branches, and no person
/// answers a thousand at once.
const MAX_ITEMS: usize = 1000;

/// The most bytes of the items that one run leaves open: a quarter of the largest write of a store, which also contains the
/// terminal event and the conversation.
const MAX_BYTES: usize = 16 << 20;

/// The limit that the items of a run exceed, if any.
pub(crate) fn exceeded_limit(open: &[NewPending]) -> Option<String> {
    let bytes: usize = open.iter().map(|item| item.id.as_str().len() + item.body.len()).sum();
    if open.len() > MAX_ITEMS {
        Some(format!("the run leaves {} things open, at most {MAX_ITEMS} are allowed", open.len()))
    } else if bytes > MAX_BYTES {
        Some(format!("what the run leaves open has {bytes} bytes, at most {MAX_BYTES} are allowed"))
    } else {
        None
    }
}

/// The items that a finished run leaves open.
pub(crate) fn left_open(
    fold: &mut Fold,
    outcome: Option<&Outcome>,
    input: &RunInput,
    gated: &Gated,
    now: Time,
) -> Vec<NewPending> {
    let interrupts = match outcome {
        Some(Outcome::Cancelled) => return Vec::new(),
        Some(Outcome::Interrupt { interrupts }) => &interrupts[..],
        _ => &[],
    };
    let mut calls = open_calls(fold, outcome, input);
    let known = match interrupts.is_empty() && gated.allowed.is_empty() {
        true => Calls::of(&[]),
        false => Calls::of(fold.messages()),
    };
    let mut open: Vec<_> =
        interrupts.iter().map(|interrupt| of_interrupt(&known, interrupt, gated, now)).collect();
    // A guarded call is decided by the answer to the question about it.
    let guarded: HashSet<_> =
        interrupts.iter().filter_map(|interrupt| interrupt.tool_call.as_ref()).collect();
    for call in &gated.allowed {
        if calls.iter().all(|(known, ..)| known != call)
            && let Some((name, arguments)) = known.find(call)
        {
            calls.push((call.clone(), name, arguments));
        }
    }
    for (call, name, arguments) in calls.into_iter().filter(|(call, ..)| !guarded.contains(call)) {
        let mut body = json!({"name": name, "arguments": arguments, "toolCallId": call.as_str()});
        gated.remember(&call, &mut body);
        open.push(NewPending {
            id: PendingId::from(call.as_str()),
            kind: FRONTEND_TOOL.into(),
            body: body.to_string().into(),
            ttl: None,
        });
    }
    open
}

/// The items of interrupts that are open on the agent's side, in a thread that started there. No run of this gateway left
/// them, so the store does not have them.
pub(crate) fn elsewhere(messages: &[Message], interrupts: &[Interrupt], now: Time) -> Vec<Pending> {
    let calls = Calls::of(messages);
    let of = |interrupt| of_interrupt(&calls, interrupt, &Gated::default(), now);
    let items = interrupts.iter().map(of).map(|NewPending { id, kind, body, ttl }| Pending {
        id,
        run: RunId::from(""),
        kind,
        body,
        created: now,
        expires: ttl
            .map(|ttl| Time(now.0.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)))),
        answer: None,
    });
    items.collect()
}

/// The member of an item with the agent's own ids, by the ids that clients see.
const AGENT_IDS: &str = "agentIds";

/// Stores the agent's own ids of an item: of the item itself, of the call that it is about, and of an interrupt behind it.
pub(crate) fn remember_agent_ids<'i>(item: &mut NewPending, of_agent: impl Fn(&str) -> Option<&'i str>) {
    let Ok(mut body) = serde_json::from_str::<Value>(&item.body) else { return };
    let mut ids = vec![item.id.as_str().to_owned()];
    ids.extend(body["toolCallId"].as_str().map(str::to_owned));
    ids.extend(approval::ids_of_question(&body));
    let own: serde_json::Map<_, _> =
        ids.into_iter().filter_map(|id| of_agent(&id).map(|own| (id.clone(), own.into()))).collect();
    if !own.is_empty() {
        body[AGENT_IDS] = Value::Object(own);
        item.body = body.to_string().into();
    }
}

/// The ids of an item that clients see, each with the agent's own.
pub(crate) fn agent_ids(item: &Pending) -> Vec<(String, String)> {
    let body: Value = serde_json::from_str(&item.body).unwrap_or_default();
    let own = body[AGENT_IDS].as_object().into_iter().flatten();
    own.filter_map(|(id, own)| Some((id.clone(), own.as_str()?.to_owned()))).collect()
}

/// Whether an item is one of the agent's side ([`elsewhere`]).
pub(crate) fn is_elsewhere(item: &Pending) -> bool {
    item.run.is_empty()
}

/// Whether the deadline of an item has passed.
pub(crate) fn is_expired(item: &Pending, now: Time) -> bool {
    item.expires.is_some_and(|expires| expires <= now)
}

/// Whether an item can be answered now.
pub(crate) fn is_open(item: &Pending, now: Time) -> bool {
    item.answer.is_none() && !is_expired(item, now)
}

/// Whether no other request is accepted while an item is open. A front end may ignore a call of its own tools.
pub(crate) fn is_required(item: &Pending) -> bool {
    *item.kind != *FRONTEND_TOOL
}

/// The item of an id; of several, the one that was asked last.
pub(crate) fn find<'i>(items: &'i [Pending], id: &str) -> Option<&'i Pending> {
    items.iter().rev().find(|item| item.id.as_str() == id)
}

/// The first open item that must be answered and is not among `answers`. The only place that decides whether a thread
/// waits: for validation, for a run that waited for its thread, and for threads recalled from the agent's side.
pub(crate) fn first_unanswered<'i>(
    items: &'i [Pending],
    answers: &[Answer],
    now: Time,
) -> Option<&'i Pending> {
    let is_answered = |item: &Pending| answers.iter().any(|answer| answer.id == item.id);
    current(items).find(|item| is_open(item, now) && is_required(item) && !is_answered(item))
}

/// True if the agent reported the interrupt by CUSTOM `on_interrupt`, which decides where it looks for the answer.
pub(crate) fn is_reported_by_custom_event(item: &Pending) -> bool {
    let body: Value = serde_json::from_str(&item.body).unwrap_or_default();
    ag_ui::is_reported_by_custom_event(Object::from_value(&body["metadata"]).as_ref())
}

/// The call that an item asks about; `None` if the item is the call itself.
pub(crate) fn guarded_call(item: &Pending) -> Option<String> {
    let body: Value = serde_json::from_str(&item.body).ok()?;
    body.get("toolCallId")?.as_str().filter(|call| *call != item.id.as_str()).map(str::to_owned)
}

impl Gateway {
    /// The open items of a thread.
    pub(crate) async fn open_items(
        &self,
        owner: &Owner,
        thread: &ThreadId,
    ) -> Result<Vec<Pending>, StoreError> {
        let items = self.items_by_id(owner, thread, HashSet::new()).await?;
        let now = self.store().now();
        Ok(current(&items).filter(|item| is_open(item, now)).cloned().collect())
    }

    /// An open item that must be answered and is not among `answers`; see [`first_unanswered`].
    pub(crate) async fn unanswered_item(
        &self,
        owner: &Owner,
        thread: &ThreadId,
        answers: &[Answer],
    ) -> Result<Option<PendingId>, StoreError> {
        let items = match self.items_by_id(owner, thread, HashSet::new()).await {
            Err(StoreError::NotFound(_)) => return Ok(None),
            items => items?,
        };
        Ok(first_unanswered(&items, answers, self.store().now()).map(|item| item.id.clone()))
    }

    /// The items that a request can be about: those without an answer, and those that it names. An item that is open on the
    /// agent's side alone is looked up there if the request has an answer and nothing is stored.
    pub(crate) async fn items_for(
        &self,
        agent: &AgentEntry,
        owner: &Owner,
        input: &RunInput,
        headers: &Arc<[(String, String)]>,
    ) -> Result<Vec<Pending>, ApiError> {
        let results = input.messages.iter().filter_map(|message| match &message.body {
            MessageBody::Tool { call, .. } => Some(PendingId::from(call.as_str())),
            _ => None,
        });
        let entries = input.resume.iter().flatten().map(|entry| PendingId::from(entry.interrupt.as_str()));
        match self.items_by_id(owner, &input.thread, results.chain(entries).collect()).await {
            Ok(items) if !items.is_empty() => return Ok(items),
            Ok(_) | Err(StoreError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        if !given::has_answer(input) {
            return Ok(Vec::new());
        }
        let about = self.thread_request(agent, owner, &input.thread, headers.clone()).await?;
        Ok(self.items_elsewhere(agent, about).await?.unwrap_or_default())
    }

    /// The items that are open on the agent's side, for a thread without messages here; `None` if the agent's side does
    /// not know the thread either.
    pub(crate) async fn items_elsewhere(
        &self,
        agent: &AgentEntry,
        about: agent::Request,
    ) -> Result<Option<Vec<Pending>>, ApiError> {
        if !self.stored_messages(&about.owner, &about.input.thread).await?.is_empty() {
            return Ok(None);
        }
        let Some(recalled) = agent.agent.recall(about) else { return Ok(None) };
        let recalled = recalled.await?;
        Ok(recalled.map(|recalled| elsewhere(&recalled.messages, &recalled.interrupts, self.store().now())))
    }

    /// The items without an answer and those of the ids in `named`, with all items of the same ids: a question without
    /// an answer may have been asked again, and then only the last one counts.
    async fn items_by_id(
        &self,
        owner: &Owner,
        thread: &ThreadId,
        mut named: HashSet<PendingId>,
    ) -> Result<Vec<Pending>, StoreError> {
        let items = self.store().pending(owner, thread, PendingFilter::Unanswered(named.clone())).await?;
        let count = named.len();
        named.extend(items.iter().map(|item| item.id.clone()));
        if named.len() == count {
            return Ok(items);
        }
        self.store().pending(owner, thread, PendingFilter::Unanswered(named)).await
    }
}

/// The calls that wait for the front end: those that the terminal event names, those of tools that the front end offered,
/// and those in the last message of the run, or in messages of their own at its end: an agent that ends there leaves the call to a person, as Agno does with tools
/// that need a confirmation. A run that ends with an interrupt names all that it waits for.
pub(crate) fn open_calls(
    fold: &mut Fold,
    outcome: Option<&Outcome>,
    input: &RunInput,
) -> Vec<(ToolCallId, String, Value)> {
    let named = match outcome {
        Some(Outcome::Success { pending }) => &pending[..],
        _ => &[],
    };
    let calls = if named.is_empty() { fold.pending_tool_calls() } else { named.to_vec() };
    if calls.is_empty() {
        return Vec::new();
    }
    let is_interrupt = matches!(outcome, Some(Outcome::Interrupt { .. }));
    let messages = fold.messages();
    let (known, left) = (Calls::of(messages), calls_left_by_agent(messages));
    let offered: HashSet<&str> = input.tools.iter().map(|tool| &*tool.name).collect();
    calls
        .into_iter()
        .filter_map(|call| {
            let (name, arguments) = known.find(&call)?;
            let is_open =
                !named.is_empty() || offered.contains(&*name) || (!is_interrupt && left.contains(&call));
            is_open.then_some((call, name, arguments))
        })
        .collect()
}

/// The calls in the last message of a conversation, or in messages of their own at its end, that have no result. Some
/// servers (LlamaIndex) send the results of their own tools only in snapshots.
fn calls_left_by_agent(messages: &[Message]) -> HashSet<&ToolCallId> {
    let mut last = messages.iter().rev().skip_while(|message| message.role() != Role::Assistant);
    let Some(newest) = last.next() else { return HashSet::new() };
    let mut left: HashSet<_> = newest.tool_calls().iter().map(|call| &call.id).collect();
    // Calls without a parent have a message each.
    if is_call_only(newest) {
        let others = last.take_while(|message| is_call_only(message));
        left.extend(others.flat_map(|message| message.tool_calls()).map(|call| &call.id));
    }
    let mut answered = HashSet::new();
    for message in messages {
        for call in message.tool_calls() {
            answered.remove(&call.id);
        }
        if let MessageBody::Tool { call, .. } = &message.body {
            answered.insert(call);
        }
    }
    left.retain(|call| !answered.contains(call));
    left
}

/// True if a message has calls and nothing else.
fn is_call_only(message: &Message) -> bool {
    let MessageBody::Assistant { content, tool_calls } = &message.body else { return false };
    content.as_deref().is_none_or(str::is_empty) && tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
}

fn of_interrupt(calls: &Calls<'_>, interrupt: &Interrupt, gated: &Gated, now: Time) -> NewPending {
    let call = interrupt.tool_call.as_ref();
    let (name, arguments) =
        call.and_then(|call| calls.find(call)).map_or((None, None), |(name, args)| (Some(name), Some(args)));
    let mut body = body_of(interrupt, name, arguments);
    gated.remember(&interrupt.id, &mut body);
    let until = interrupt.expires_at.as_deref().and_then(parse_iso);
    NewPending {
        id: PendingId::from(interrupt.id.as_str()),
        kind: kind_of(interrupt).into(),
        body: body.to_string().into(),
        ttl: until.map(|until| Duration::from_millis(until.saturating_sub(now.0))),
    }
}

/// The members of an interrupt, except its id, as the body of an item.
pub(crate) fn body_of(interrupt: &Interrupt, name: Option<String>, arguments: Option<Value>) -> Value {
    let value = |object: &Option<Object>| object.as_ref().map(Object::to_value);
    without_nulls(json!({
        "reason": &*interrupt.reason,
        "name": name,
        "arguments": arguments,
        "message": interrupt.message.as_deref(),
        "toolCallId": interrupt.tool_call.as_deref(),
        "responseSchema": value(&interrupt.response_schema),
        "expiresAt": interrupt.expires_at.as_deref(),
        "metadata": value(&interrupt.metadata),
    }))
}

/// The interrupt of an item: the inverse of [`body_of`].
pub(crate) fn interrupt_of(id: &str, body: &Value) -> Interrupt {
    let text = |key: &str| body[key].as_str();
    let mut interrupt = Interrupt::new(id, text("reason").unwrap_or("input_required"));
    interrupt.message = text("message").map(Into::into);
    interrupt.tool_call = text("toolCallId").map(Into::into);
    interrupt.expires_at = text("expiresAt").map(Into::into);
    interrupt.response_schema = Object::from_value(&body["responseSchema"]);
    interrupt.metadata = Object::from_value(&body["metadata"]);
    interrupt
}

/// The kind of an interrupt's item.
pub(crate) fn kind_of(interrupt: &Interrupt) -> &'static str {
    match &*interrupt.reason {
        "confirmation" => APPROVAL,
        "adk:credential" => "credential",
        "input_required" => "input",
        // A question about a call is whether it may run, unless the call itself is the long-running one.
        "tool_call" if interrupt.tool_call.as_deref() == Some(&*interrupt.id) => LONG_RUNNING_TOOL,
        "tool_call" => APPROVAL,
        _ => INTERRUPT,
    }
}

fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        members.retain(|_, member| !member.is_null());
    }
    value
}

/// The last call of each id; arguments that are not JSON stay text.
pub(crate) struct Calls<'m>(HashMap<&'m ToolCallId, &'m ToolCall>);

impl<'m> Calls<'m> {
    pub(crate) fn of(messages: &'m [Message]) -> Self {
        let calls = messages.iter().flat_map(|message| message.tool_calls());
        Self(calls.map(|call| (&call.id, call)).collect())
    }

    /// The name and the arguments of a call.
    pub(crate) fn find(&self, call: &ToolCallId) -> Option<(String, Value)> {
        let found = self.0.get(call)?;
        let arguments = serde_json::from_str(&found.arguments).unwrap_or_else(|_| (&*found.arguments).into());
        Some((found.name.to_string(), arguments))
    }
}

/// The last item of each id: some servers number the calls of every turn from the start, so that an id means the last one.
pub(crate) fn current(items: &[Pending]) -> impl Iterator<Item = &Pending> {
    let last: HashMap<&PendingId, usize> =
        items.iter().enumerate().map(|(index, item)| (&item.id, index)).collect();
    items
        .iter()
        .enumerate()
        .filter(move |(index, item)| last.get(&item.id) == Some(index))
        .map(|(_, item)| item)
}

/// An item as `GET /threads/{id}/pending` shows it.
pub(crate) fn to_json(item: &Pending) -> Value {
    let mut shown = json!({
        "id": item.id.as_str(),
        "kind": &*item.kind,
        "awaitingResult": item.answer.is_none(),
    });
    if !is_elsewhere(item) {
        shown["runId"] = item.run.as_str().into();
        shown["createdAt"] = iso(item.created.0).into();
    }
    if let Ok(Value::Object(body)) = serde_json::from_str(&item.body) {
        for (key, value) in body {
            if shown.get(&key).is_none() && key != AGENT_IDS && !approval::is_memory(&key) {
                shown[key] = value;
            }
        }
    }
    if let Some(arguments) = shown.get("arguments") {
        shown["argumentsHash"] = canonical::hash(arguments).into();
    }
    if let (Some(expires), None) = (item.expires, shown.get("expiresAt")) {
        shown["expiresAt"] = iso(expires.0).into();
    }
    if let Some(RecordedAnswer { body, by, at, run }) = &item.answer {
        let answer: Value = serde_json::from_str(body).unwrap_or_else(|_| (&**body).into());
        shown["answer"] = json!({"by": &**by, "at": iso(at.0), "runId": run.as_str(), "content": answer});
    }
    shown
}

#[cfg(test)]
mod tests {
    use agentwire_core::event::{Body, Event};

    use super::*;

    /// With a look at the conversation for each call this would take minutes.
    #[test]
    fn many_calls_are_found_in_one_pass() {
        const MANY: usize = 50_000;
        let mut fold = Fold::new();
        for number in 0..MANY {
            let (call, name) = (ToolCallId::from(format!("c{number}")), "f".into());
            fold.apply(&Event::new(Body::ToolStart { call: call.clone(), name, parent: None }));
            fold.apply(&Event::new(Body::ToolEnd { call }));
        }
        let open = open_calls(&mut fold, None, &RunInput::new("t", "r"));
        assert_eq!(open.len(), MANY);
        assert_eq!(open[1].0.as_str(), "c1");
        let asked = Outcome::Interrupt { interrupts: vec![Interrupt::new("i", "x")] };
        assert!(open_calls(&mut fold, Some(&asked), &RunInput::new("t", "r")).is_empty());
    }
}
