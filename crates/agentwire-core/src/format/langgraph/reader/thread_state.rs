//! What a thread holds between runs: its conversation, its state, and what it waits for.
//!
//! The server answers with it at `/threads/{id}/state` and `/threads/{id}/history`. It is also the only place
//! that says how a run has ended when its stream closed without a word, and where a static breakpoint shows.

use serde_json::value::RawValue;

use super::{
    super::{
        raw_json,
        wire::{self, Native, Question, Task},
    },
    call_ids::Reused,
    messages,
};
use crate::{
    event::{Interrupt, InterruptId, Message, ToolCallId},
    json::{Json, Object, ReadError, kind_of},
    tally::Tally,
};

/// The reason of an interrupt that a graph raised.
const INTERRUPT: &str = "langgraph:interrupt";

/// The reason of a stop before or after a node that the caller asked for.
const BREAKPOINT: &str = "langgraph:breakpoint";

/// How ids of breakpoints begin. LangGraph has none for them.
pub(in crate::format::langgraph) const BREAKPOINT_ID: &str = "breakpoint";

/// What a thread holds.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadState {
    /// The conversation.
    pub messages: Vec<Message>,
    /// Everything else in the graph's state.
    pub state: Object,
    /// What the thread waits for.
    pub interrupts: Vec<Interrupt>,
    /// The nodes that would run next; empty when the graph is at its end.
    pub next: Vec<Box<str>>,
    /// The checkpoint that this is.
    pub checkpoint: Option<Box<str>>,
    /// Whether the last run was cancelled.
    pub cancelled: bool,
    /// What stopped the last run: class and text.
    pub failure: Option<(Option<Box<str>>, Box<str>)>,
}

/// Reads the answer of `/threads/{id}/state`. Reasoning stands as messages of its own before the answers that
/// it led to.
///
/// # Errors
/// When it is not JSON or not a state.
pub fn read_state(text: &str, tally: &mut Tally) -> Result<ThreadState, ReadError> {
    let raw: &RawValue =
        serde_json::from_str(text).map_err(|error| ReadError::new("", format!("not valid JSON: {error}")))?;
    read(raw, "", tally)
}

/// Reads the answer of `/threads/{id}/history`, the newest state first.
///
/// # Errors
/// When it is not JSON or not a list of states.
pub fn read_history(text: &str, tally: &mut Tally) -> Result<Vec<ThreadState>, ReadError> {
    let raw: &RawValue =
        serde_json::from_str(text).map_err(|error| ReadError::new("", format!("not valid JSON: {error}")))?;
    let list = raw_json::elements(raw)
        .ok_or_else(|| ReadError::new("", format!("expected an array, found {}", kind_of(text))))?;
    list.into_iter().enumerate().map(|(index, raw)| read(raw, &format!("/{index}"), tally)).collect()
}

fn read(raw: &RawValue, path: &str, tally: &mut Tally) -> Result<ThreadState, ReadError> {
    let wrong = |path: String, wanted: &str, raw: &RawValue| {
        ReadError::new(path, format!("expected {wanted}, found {}", kind_of(raw.get())))
    };
    let native = Native::of(raw).ok_or_else(|| wrong(path.to_owned(), "a thread's state", raw))?;
    let Some(values) = native.values else {
        return Err(ReadError::new(path, "`values` is missing, expected the thread's values"));
    };
    let mut conversation = Vec::new();
    let mut state = Vec::new();
    // A thread that has never run has `values: []` or none.
    for (key, value) in raw_json::members(values).unwrap_or_default() {
        if key == "messages" {
            let mut reused = Reused::default();
            for (place, raw) in messages::list(value).into_iter().enumerate() {
                conversation.extend(messages::reasoning(raw, tally));
                match messages::message(raw, place, &messages::Native, &mut reused, tally) {
                    Some((_, message)) => conversation.push(message),
                    None => tally.note("wrong type", "message in the state"),
                }
            }
        } else if !(key.starts_with("__") && key.ends_with("__")) {
            state.push((key, raw_json::json(value, tally)));
        }
    }
    let verdict = Verdict::of_state(&native, tally);
    let checkpoint = ["checkpoint_id", "checkpoint"].iter().find_map(|name| {
        let value = raw_json::members(raw)?.into_iter().find(|(key, _)| key == name)?.1;
        match raw_json::is_object(value) {
            true => raw_json::members(value)?
                .into_iter()
                .find(|(key, _)| key == "checkpoint_id")
                .and_then(|(_, id)| raw_json::string(id, &mut Tally::default()).map(Box::from)),
            false => raw_json::string(value, &mut Tally::default()).map(Box::from),
        }
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

/// What a state or a run says about how a run ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict {
    pub(super) interrupts: Option<Vec<Interrupt>>,
    pub(super) next: Vec<Box<str>>,
    pub(super) cancelled: bool,
    /// The run's status is `interrupted`: by an interrupt, a breakpoint or a cancellation.
    stopped: bool,
    pub(super) failure: Option<(Option<Box<str>>, Box<str>)>,
}

impl Verdict {
    pub(super) fn of_state(native: &Native<'_>, tally: &mut Tally) -> Self {
        let mut verdict = Self {
            next: raw_json::strings(native.next, tally).into_iter().map(Into::into).collect(),
            ..Self::default()
        };
        let mut found = native.interrupts.map(|raw| interrupts(raw, 0, tally)).unwrap_or_default();
        for raw in native.tasks.and_then(raw_json::elements).unwrap_or_default() {
            let Some(task) = Task::of(raw) else { continue };
            if let Some(raw) = task.interrupts {
                for interrupt in interrupts(raw, found.len(), tally) {
                    if !found.iter().any(|known| known.id == interrupt.id) {
                        found.push(interrupt);
                    }
                }
            }
            if let Some(error) = task.error {
                let (class, message) = super::run::failure(Some(error), tally);
                match class.as_deref() {
                    Some("CancelledError" | "UserRollback" | "UserInterrupt") => verdict.cancelled = true,
                    Some("GraphInterrupt" | "NodeInterrupt") => {}
                    _ => verdict.failure = Some((class, message)),
                }
            }
        }
        verdict.interrupts = Some(found);
        verdict
    }

    /// What `/threads/{id}/runs/{id}` says; `None` while the run goes on.
    pub(super) fn of_run(native: &Native<'_>, tally: &mut Tally) -> Option<Self> {
        let status = raw_json::filled(native.status, tally)?;
        let mut verdict = Self::default();
        match &*status {
            "success" => {}
            "interrupted" => verdict.stopped = true,
            "error" => verdict.failure = Some((None, "the run failed".into())),
            "timeout" => verdict.failure = Some((Some("timeout".into()), "the run took too long".into())),
            "pending" | "running" => return None,
            other => {
                tally.note("run status", other);
                return None;
            }
        }
        Some(verdict)
    }

    /// Learns what another source says.
    pub(super) fn merge(&mut self, other: Self) {
        self.interrupts = other.interrupts.or(self.interrupts.take());
        if !other.next.is_empty() {
            self.next = other.next;
        }
        self.cancelled |= other.cancelled;
        self.stopped |= other.stopped;
        // A class and a text are better than a status.
        let better = other.failure.as_ref().is_some_and(|(class, _)| class.is_some());
        if better || self.failure.is_none() {
            self.failure = other.failure.or(self.failure.take());
        }
    }

    /// Whether the graph waits at a node that nothing but a breakpoint can have stopped.
    pub(super) fn is_breakpoint(&self) -> bool {
        !self.next.is_empty()
            && self.interrupts.as_ref().is_some_and(Vec::is_empty)
            && !self.cancelled
            && self.failure.is_none()
    }

    /// Whether somebody stopped the run.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled || self.stopped && self.interrupts.is_none() && self.next.is_empty()
    }
}

/// The interrupts in a list, or a single one. `known`: how many there are already, to name those without id.
pub(super) fn interrupts(raw: &RawValue, known: usize, tally: &mut Tally) -> Vec<Interrupt> {
    let mut interrupts = Vec::new();
    for raw in messages::list(raw) {
        let Some(native) = wire::Interrupt::of(raw) else {
            tally.note("wrong type", "interrupt");
            continue;
        };
        let place = raw_json::strings(native.ns, tally).join("|");
        let id = raw_json::filled(native.id.or(native.interrupt_id), tally);
        let id: InterruptId = match id {
            Some(id) => id.as_ref().into(),
            // Before ids, the place of the node was the identity.
            None if !place.is_empty() => place.as_str().into(),
            None => format!("interrupt-{}", known + interrupts.len() + 1).into(),
        };
        interrupts.push(interrupt(
            id,
            native.value.or(native.payload),
            native.response_schema,
            &place,
            tally,
        ));
    }
    interrupts
}

/// One interrupt with its payload: what a person reads is taken out, all of it travels in the metadata.
pub(super) fn interrupt(
    id: InterruptId,
    value: Option<&RawValue>,
    schema: Option<&RawValue>,
    place: &str,
    tally: &mut Tally,
) -> Interrupt {
    let question = value.and_then(Question::of).unwrap_or_default();
    let said = value.and_then(|value| raw_json::string(value, tally));
    let mut text = |raw: Option<&RawValue>| raw_json::filled(raw, tally).map(Box::<str>::from);
    let mut interrupt = Interrupt::new(id, text(question.reason).unwrap_or_else(|| INTERRUPT.into()));
    interrupt.message = said.map(Into::into).or_else(|| {
        [question.message, question.question, question.prompt, question.description]
            .into_iter()
            .find_map(&mut text)
    });
    // What LangChain's approval middleware asks for, request by request.
    if interrupt.message.is_none()
        && let Some(requests) = question.action_requests.and_then(raw_json::elements)
        && let Some(first) = requests.first().and_then(|raw| Question::of(raw))
    {
        interrupt.message = text(first.description);
    }
    interrupt.tool_call =
        text(question.tool_call_camel.or(question.tool_call_id)).map(|call| ToolCallId::from(&*call));
    interrupt.expires_at = text(question.expires_camel.or(question.expires_at));
    let schema = schema.or(question.schema_camel).or(question.response_schema);
    interrupt.response_schema = schema.and_then(|raw| raw_json::json(raw, tally).into_object());
    let mut native = vec![("raw", value.map_or_else(Json::null, |value| raw_json::json(value, tally)))];
    if !place.is_empty() {
        native.push(("ns", Json::string(place)));
    }
    let native = Object::from_entries(native);
    interrupt.metadata = Some(Object::from_entries([("langgraph", native.into())]));
    interrupt
}

/// The stops before the nodes that would run next; one without a name if nobody knows them.
/// Whether an interrupt is a breakpoint of the graph's own, which is told by nothing but where the graph stands: so does one
/// that is running, or that was cancelled between two nodes.
#[must_use]
pub fn is_breakpoint(interrupt: &Interrupt) -> bool {
    &*interrupt.reason == BREAKPOINT
}

pub(super) fn breakpoints(next: &[Box<str>]) -> Vec<Interrupt> {
    if next.is_empty() {
        return vec![Interrupt::new(BREAKPOINT_ID, BREAKPOINT)];
    }
    next.iter()
        .map(|node| {
            let mut interrupt = Interrupt::new(format!("{BREAKPOINT_ID}:{node}"), BREAKPOINT);
            let native = Object::from_entries([("node", Json::string(node))]);
            interrupt.metadata = Some(Object::from_entries([("langgraph", native.into())]));
            interrupt
        })
        .collect()
}

/// The open call that an approval asks about by its name, if there is exactly one.
pub(super) fn asked_call<'c>(
    interrupt: &Interrupt,
    open: impl Iterator<Item = (&'c ToolCallId, &'c str)>,
) -> Option<ToolCallId> {
    let payload = interrupt.metadata.as_ref()?.member("langgraph")?.into_object()?.member("raw")?.to_value();
    let requests = payload.get("action_requests")?.as_array()?;
    let [request] = &requests[..] else { return None };
    let name = request.get("name").or_else(|| request.get("action"))?.as_str()?;
    let mut matching = open.filter(|(_, call)| *call == name);
    let only = matching.next()?;
    matching.next().is_none().then(|| only.0.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Content, MessageBody, Role};

    fn read(text: &str) -> ThreadState {
        read_state(text, &mut Tally::default()).unwrap()
    }

    #[test]
    fn a_finished_thread_has_its_conversation_and_state() {
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
    fn an_interrupted_thread_says_what_it_waits_for() {
        let state = read(include_str!("../fixtures/threads/server-hitl-state-interrupted.json"));
        let [interrupt] = &state.interrupts[..] else { panic!("{:?}", state.interrupts) };
        assert_eq!(interrupt.message.as_deref(), Some("Delete 3 files?"));
        assert_eq!(state.next, ["approve".into()]);
        assert!(state.checkpoint.is_some());
        assert!(!state.cancelled);
    }

    #[test]
    fn a_cancelled_thread_waits_for_nothing() {
        let state = read(include_str!("../fixtures/threads/server-slow-cancel-interrupt-state.json"));
        assert!(state.cancelled);
        assert!(state.interrupts.is_empty());
        assert_eq!(state.next, ["chatbot".into()]);
    }

    #[test]
    fn a_breakpoint_is_what_nothing_else_explains() {
        let state = read(
            r#"{"values":{"messages":[]},"next":["tools"],"tasks":[{"id":"1","name":"tools","error":null,"interrupts":[]}]}"#,
        );
        assert_eq!(&*state.interrupts[0].id, "breakpoint:tools");
        assert_eq!(&*state.interrupts[0].reason, "langgraph:breakpoint");
    }

    #[test]
    fn history_is_a_list_of_states_newest_first() {
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
    fn reasoning_stands_before_its_answer() {
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
