//! A thread between runs: its conversation, its state and its interrupts.
//!
//! LangGraph Server returns it at `/threads/{id}/state` and `/threads/{id}/history`. It is the only source for the
//! outcome of a run whose stream closed without one, and for static breakpoints.

use serde_json::value::RawValue;

use super::{
    super::{raw_json, wire::NativeFrame},
    call_ids::ListedCalls,
    interrupts::{BREAKPOINT, breakpoints},
    messages::{self, NativeIds},
    parse,
    run_verdict::RunVerdict,
};
use crate::{
    event::{Interrupt, Message},
    json::{Object, ReadError, ReadResult, kind_of},
    tally::Tally,
};

/// The state of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadState {
    /// The conversation.
    pub messages: Vec<Message>,
    /// The graph's state without its messages.
    pub state: Object,
    /// The interrupts that wait for an answer.
    pub interrupts: Vec<Interrupt>,
    /// The nodes that would run next; empty at the end of the graph.
    pub next: Vec<Box<str>>,
    /// The id of the checkpoint.
    pub checkpoint: Option<Box<str>>,
    /// Whether the last run was cancelled.
    pub cancelled: bool,
    /// The error that stopped the last run: class and message.
    pub failure: Option<(Option<Box<str>>, Box<str>)>,
}

/// Reads the response of `/threads/{id}/state`. Reasoning becomes messages of its own, which precede the
/// assistant's messages.
///
/// # Errors
/// When it is not JSON or not a state.
pub fn read_state(text: &str, tally: &mut Tally) -> ReadResult<ThreadState> {
    read(parse(text)?, "", tally)
}

/// Reads the response of `/threads/{id}/history`, the newest state first.
///
/// # Errors
/// When it is not JSON or not a list of states.
pub fn read_history(text: &str, tally: &mut Tally) -> ReadResult<Vec<ThreadState>> {
    let list = raw_json::elements(parse(text)?)
        .ok_or_else(|| ReadError::new("", format!("expected an array, found {}", kind_of(text))))?;
    list.into_iter().enumerate().map(|(index, raw)| read(raw, &format!("/{index}"), tally)).collect()
}

/// Whether an interrupt is a static breakpoint. Breakpoints are inferred from the graph's next nodes alone, which
/// also exist while a run is active and after a cancellation between two nodes.
#[must_use]
pub fn is_breakpoint(interrupt: &Interrupt) -> bool {
    &*interrupt.reason == BREAKPOINT
}

fn read(raw: &RawValue, path: &str, tally: &mut Tally) -> ReadResult<ThreadState> {
    let native = NativeFrame::of(raw).ok_or_else(|| {
        ReadError::new(path, format!("expected a thread's state, found {}", kind_of(raw.get())))
    })?;
    let Some(values) = native.values else {
        return Err(ReadError::new(path, "`values` is missing, expected the thread's values"));
    };
    let mut conversation = Vec::new();
    let mut state = Vec::new();
    // `values` of a thread without runs is `[]` or null.
    for (key, value) in raw_json::members(values).unwrap_or_default() {
        if key == "messages" {
            let mut listed = ListedCalls::default();
            for (position, raw) in messages::one_or_many(value).into_iter().enumerate() {
                conversation.extend(messages::reasoning_messages(raw, tally));
                match messages::canonical_message(raw, position, &NativeIds, &mut listed, tally) {
                    Some((_, message)) => conversation.push(message),
                    None => tally.note("wrong type", "message in the state"),
                }
            }
        } else if !(key.starts_with("__") && key.ends_with("__")) {
            state.push((key, raw_json::json(value, tally)));
        }
    }
    let verdict = RunVerdict::of_state(&native, tally);
    let checkpoint = ["checkpoint_id", "checkpoint"].iter().find_map(|name| {
        let value = raw_json::member(raw, name)?;
        let id = if raw_json::is_object(value) { raw_json::member(value, "checkpoint_id")? } else { value };
        raw_json::string(id, &mut Tally::default()).map(Box::from)
    });
    Ok(ThreadState {
        messages: conversation,
        state: Object::from_entries(state.iter().map(|(key, value)| (key.as_ref(), value.clone()))),
        interrupts: match verdict.is_breakpoint() {
            true => breakpoints(&verdict.next),
            false => verdict.interrupts.clone().unwrap_or_default(),
        },
        next: verdict.next,
        checkpoint,
        cancelled: verdict.cancelled,
        failure: verdict.failure,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Content, MessageBody, Role};

    fn read(text: &str) -> ThreadState {
        read_state(text, &mut Tally::default()).unwrap()
    }

    #[test]
    fn finished_thread_has_its_conversation_and_state() {
        let state = read(include_str!("../fixtures/threads/state_extra_keys.state.json"));
        let roles: Vec<_> = state.messages.iter().map(Message::role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant]);
        assert_eq!(state.messages[1].tool_calls()[0].arguments.as_ref(), r#"{"fact":"sky is blue"}"#);
        assert!(matches!(&state.messages[2].body,
            MessageBody::Tool { call, content: Content::Text(text), error: None }
                if call.as_str() == "call_s1" && &**text == "saved sky is blue"));
        assert_eq!(
            state.state.get(),
            r#"{"facts":["seed","sky is blue","the end"],"stage":"finished","counters":{"agent":2}}"#
        );
        assert!(state.interrupts.is_empty() && state.next.is_empty());
    }

    #[test]
    fn interrupted_thread_has_its_interrupt_and_next_node() {
        let state = read(include_str!("../fixtures/threads/server-hitl-state-interrupted.json"));
        let [interrupt] = &state.interrupts[..] else { panic!("{:?}", state.interrupts) };
        assert_eq!(interrupt.message.as_deref(), Some("Delete 3 files?"));
        assert_eq!(state.next, ["approve".into()]);
        assert!(state.checkpoint.is_some());
        assert!(!state.cancelled);
    }

    #[test]
    fn cancelled_thread_has_no_interrupts() {
        let state = read(include_str!("../fixtures/threads/server-slow-cancel-interrupt-state.json"));
        assert!(state.cancelled);
        assert!(state.interrupts.is_empty());
        assert_eq!(state.next, ["chatbot".into()]);
    }

    #[test]
    fn next_node_without_error_or_interrupt_is_a_breakpoint() {
        let state = read(
            r#"{"values":{"messages":[]},"next":["tools"],"tasks":[{"id":"1","name":"tools","error":null,"interrupts":[]}]}"#,
        );
        assert_eq!(&*state.interrupts[0].id, "breakpoint:tools");
        assert_eq!(&*state.interrupts[0].reason, "langgraph:breakpoint");
    }

    #[test]
    fn history_lists_states_newest_first() {
        let text = include_str!("../fixtures/threads/server-hitl-history.json");
        let history = read_history(text, &mut Tally::default()).unwrap();
        assert!(history.len() > 2);
        assert!(history[0].messages.len() >= history[1].messages.len());
        let error = read_state("[1]", &mut Tally::default()).unwrap_err();
        assert_eq!(error.to_string(), "expected a thread's state, found an array");
        let error = read_history(r#"[{"next":[]}]"#, &mut Tally::default()).unwrap_err();
        assert_eq!(error.path(), "/0");
    }

    #[test]
    fn reasoning_precedes_its_message() {
        let state = read(
            r#"{"next":[],"values":{"messages":[{"type":"ai","id":"m","content":[
            {"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"Four."}]}]}}"#,
        );
        let [reasoning, answer] = &state.messages[..] else { panic!("{:?}", state.messages) };
        assert_eq!(reasoning.role(), Role::Reasoning);
        assert_eq!(reasoning.encrypted.as_deref(), Some("s"));
        assert_eq!(&*reasoning.id, "m-r0");
        assert_eq!(answer.id.as_str(), "m");
    }
}
