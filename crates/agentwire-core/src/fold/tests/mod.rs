//! The rules of the fold, one test each, and the invariants of every stream.

mod compacting;
mod folding;
mod joining;

use proptest::prelude::*;
use serde_json::Value;

use super::{
    Fold,
    arbitrary::{object, streams, untidy_streams},
};
use crate::{
    event::{
        Body, Event, Interrupt, Message, MessageBody, MessageData, Outcome, RunFinished, RunStarted,
        SubagentId, ToolCall, ToolCallId, ToolResult,
    },
    json::Object,
    order::Checker,
    patch::{Patch, PatchOp},
};

/// The state of a fold that a client can observe.
type Held = (Vec<Message>, Value, Vec<Interrupt>, Vec<ToolCallId>);

fn held(mut fold: Fold) -> Held {
    (fold.messages().to_vec(), fold.state().clone(), fold.interrupts().to_vec(), fold.pending_tool_calls())
}

fn folded<'e>(mut fold: Fold, events: impl IntoIterator<Item = &'e Event>) -> Fold {
    for event in events {
        fold.apply(event);
    }
    fold
}

/// The first violation of an order rule that the official client rejects.
fn violation<'e>(events: impl IntoIterator<Item = &'e Event>) -> Option<String> {
    let mut checker = Checker::new();
    let violations = events.into_iter().filter_map(|event| checker.check(event));
    violations
        .into_iter()
        .find(|violation| violation.rule.enforced_by_client())
        .map(|violation| violation.to_string())
}

fn fold(events: impl IntoIterator<Item = Event>) -> Fold {
    on(Vec::new(), events)
}

fn on(history: Vec<Message>, events: impl IntoIterator<Item = Event>) -> Fold {
    let events: Vec<Event> = events.into_iter().collect();
    folded(Fold::from_history(history, None), &events)
}

fn messages(events: impl IntoIterator<Item = Event>) -> Vec<Message> {
    fold(events).into_parts().0
}

fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::kind).collect()
}

fn run_started(run: &str) -> Event {
    Body::RunStarted(Box::new(RunStarted::new("t", run))).into()
}

fn run_finished(run: &str, outcome: Option<Outcome>) -> Event {
    Body::RunFinished(Box::new(RunFinished { outcome, ..RunFinished::new("t", run) })).into()
}

fn start(message: &str) -> Event {
    Body::TextStart { message: message.into(), role: None, name: None }.into()
}

fn delta(message: &str, delta: &str) -> Event {
    Body::TextDelta { message: message.into(), delta: delta.into() }.into()
}

fn end(message: &str) -> Event {
    Body::TextEnd { message: message.into() }.into()
}

fn reasoning_start(message: &str) -> Event {
    Body::ReasoningMessageStart { message: message.into() }.into()
}

fn reasoning(message: &str, delta: &str) -> Event {
    Body::ReasoningDelta { message: message.into(), delta: delta.into() }.into()
}

fn call(call: &str, name: &str, parent: Option<&str>) -> Event {
    Body::ToolStart { call: call.into(), name: name.into(), parent: parent.map(Into::into) }.into()
}

fn arguments(call: &str, delta: &str) -> Event {
    Body::ToolArgs { call: call.into(), delta: delta.into() }.into()
}

fn call_end(call: &str) -> Event {
    Body::ToolEnd { call: call.into() }.into()
}

fn result(message: &str, call: &str, content: &str) -> Event {
    let (message, call) = (message.into(), call.into());
    let content = content.into();
    Body::ToolResult(Box::new(ToolResult { message, call, content, error: None, explicit_role: false }))
        .into()
}

fn state(snapshot: Value) -> Event {
    Body::StateSnapshot { snapshot: snapshot.into() }.into()
}

fn state_delta(operations: impl IntoIterator<Item = PatchOp>) -> Event {
    Body::StateDelta { patch: Patch(operations.into_iter().collect()) }.into()
}

fn snapshot(messages: impl IntoIterator<Item = Message>) -> Event {
    Body::MessagesSnapshot { messages: messages.into_iter().collect() }.into()
}

fn activity(message: &str, kind: &str, content: Value) -> Event {
    let (message, kind) = (message.into(), kind.into());
    Body::ActivitySnapshot { message, kind, content: object(content), replace: None }.into()
}

fn activity_delta(message: &str, kind: &str, operations: impl IntoIterator<Item = PatchOp>) -> Event {
    let patch = Patch(operations.into_iter().collect());
    Body::ActivityDelta { message: message.into(), kind: kind.into(), patch }.into()
}

/// The same event, attributed.
fn by(subagent: &str, event: Event) -> Event {
    event.by(Some(SubagentId::from(subagent)))
}

/// The same event with metadata.
fn with(metadata: Value, event: Event) -> Event {
    event.with_metadata(Some(object(metadata)))
}

fn assistant(id: &str, content: Option<&str>, calls: &[ToolCall]) -> Message {
    let tool_calls = (!calls.is_empty()).then(|| calls.to_vec());
    Message::new(id, MessageBody::Assistant { content: content.map(Into::into), tool_calls })
}

fn tool(id: &str, call: &str, content: &str) -> Message {
    Message::new(id, MessageBody::Tool { call: call.into(), content: content.into(), error: None })
}

fn reasoned(id: &str, content: &str) -> Message {
    Message::new(id, MessageBody::Reasoning { content: content.into() })
}

fn active(id: &str, kind: &str, content: Value) -> Message {
    Message::new(id, MessageBody::Activity { kind: kind.into(), content: object(content) })
}

fn ids(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.id.as_str()).collect()
}

fn metadata(message: &Message) -> Option<&str> {
    message.metadata.as_ref().map(Object::get)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_streams_to_test_with_are_valid(tidy in streams(80), untidy in untidy_streams(80)) {
        let mut checker = Checker::new();
        for event in &tidy {
            prop_assert_eq!(checker.check(event), None);
        }
        prop_assert_eq!(checker.end(), None);
        prop_assert_eq!(violation(&untidy), None);
    }
}
