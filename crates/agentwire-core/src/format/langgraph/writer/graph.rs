//! The run so far, as a graph has it: values, nodes, and the messages that are being streamed.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::super::server_form::{own_state, shown_id, without_open};
use crate::{
    event::{Body, Event, Message, MessageBody, MessageId, RunId, ThreadId, ToolCallId},
    fold::Fold,
    format::Setup,
};

/// A call whose arguments are being written.
pub(super) struct OpenCall {
    pub(super) message: MessageId,
    pub(super) index: i64,
}

/// The state of a run, without that of its subagents.
pub(super) struct Graph {
    pub(super) thread: ThreadId,
    pub(super) run: RunId,
    pub(super) fold: Fold,
    /// The open steps, the innermost last, with the numbers of their starts.
    pub(super) steps: Vec<(Box<str>, u64)>,
    /// The number of the last step.
    pub(super) step: u64,
    /// The number of the superstep: steps that are open at the same time share it.
    pub(super) superstep: u64,
    /// Messages that are being streamed, reasoning included.
    open: Vec<MessageId>,
    /// The last message of which a piece was written, with the id under which it is shown.
    shown: Option<(MessageId, MessageId)>,
    pub(super) calls: HashMap<ToolCallId, OpenCall>,
    /// Calls so far of each message.
    indexes: HashMap<MessageId, i64>,
    /// The steps in which messages began, while several steps are open: a message stays in its step.
    began: HashMap<MessageId, (Box<str>, u64)>,
    /// The number of messages that were there before, or that updates have reported without a gap.
    before: usize,
    /// Messages behind them that an update has reported.
    reported: HashSet<MessageId>,
    /// The finish reasons of messages, by the ids under which they are shown.
    reasons: HashMap<MessageId, Box<str>>,
    /// True once the first values are written.
    pub(super) has_values: bool,
}

impl Graph {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let request = setup.options.request();
        let messages = request.map_or_else(Vec::new, |request| request.messages.clone());
        let state = request.and_then(|request| request.state.as_ref()).map(|state| state.to_value());
        Self {
            thread: setup.thread.clone(),
            run: setup.run.clone(),
            before: messages.len(),
            reported: HashSet::new(),
            reasons: HashMap::new(),
            fold: Fold::from_history(messages, state),
            steps: Vec::new(),
            step: 0,
            superstep: 0,
            open: Vec::new(),
            calls: HashMap::new(),
            indexes: HashMap::new(),
            began: HashMap::new(),
            shown: None,
            has_values: false,
        }
    }

    /// Adds an event of the main agent.
    pub(super) fn apply(&mut self, event: &Event) {
        match &event.body {
            // The fold would keep the places of the request's messages.
            Body::MessagesSnapshot { messages } if !self.has_values => {
                let state = self.fold.state().clone();
                self.fold = Fold::from_history(messages.clone(), Some(state));
            }
            _ => self.fold.apply(event),
        }
        match &event.body {
            Body::TextStart { message, .. } | Body::ReasoningMessageStart { message } => {
                self.open.push(message.clone());
                self.begin(message);
            }
            Body::TextEnd { message } | Body::ReasoningMessageEnd { message } => {
                self.open.retain(|open| open != message);
            }
            Body::ToolStart { call, .. } => {
                // The message that has the call in the values, which need not be the requested parent.
                let has_call = |known: &&Message| known.tool_calls().iter().any(|known| known.id == *call);
                let holder = self.fold.messages().iter().rfind(has_call).map(|holder| holder.id.clone());
                let message = holder.unwrap_or_else(|| call.as_str().into());
                self.begin(&message);
                let next = self.indexes.entry(message.clone()).or_default();
                let index = *next;
                *next += 1;
                self.calls.insert(call.clone(), OpenCall { message, index });
            }
            Body::ToolEnd { call } => {
                self.calls.remove(call);
            }
            Body::ToolResult(result) => self.begin_result(&result.message, &result.call),
            Body::FinishReason { message, reason } => {
                if let Some(message) = self.finished_message(message.as_ref()) {
                    let shown = self.shown_id(&message);
                    self.reasons.insert(shown, reason.clone());
                }
            }
            Body::MessagesSnapshot { .. } => {
                self.before = self.fold.messages().len();
                self.reported.clear();
                self.shown = None;
            }
            Body::StepStarted { name } => {
                self.superstep += u64::from(self.steps.is_empty());
                self.step += 1;
                self.steps.push((name.clone(), self.step));
            }
            Body::RunFinished(_) | Body::RunError(_) => {
                (self.open, self.calls) = (Vec::new(), HashMap::new());
            }
            _ => {}
        }
    }

    /// Notes the step in which a message begins.
    fn begin(&mut self, message: &MessageId) {
        if let Some(step) = self.steps.last() {
            self.began.entry(message.clone()).or_insert_with(|| step.clone());
        }
    }

    /// A result belongs to the step of its call while that is open, or else to the innermost one.
    fn begin_result(&mut self, message: &MessageId, call: &ToolCallId) {
        if self.steps.len() > 1 {
            let has_call = |known: &&Message| known.tool_calls().iter().any(|known| known.id == *call);
            let holder = self.fold.messages().iter().rfind(has_call).map(|holder| holder.id.clone());
            if let Some(step) = holder.and_then(|holder| self.began.get(&holder)).cloned() {
                self.began.entry(message.clone()).or_insert(step);
            }
        }
        self.begin(message);
    }

    /// The message that a finish reason is about: the last one of the assistant if it names none.
    pub(super) fn finished_message(&mut self, message: Option<&MessageId>) -> Option<MessageId> {
        let is_meant = |known: &&Message| match message {
            Some(message) => known.id == *message,
            None => matches!(known.body, MessageBody::Assistant { .. }),
        };
        Some(self.fold.messages().iter().rfind(is_meant)?.id.clone())
    }

    /// The step of a message: the one in which it began, while that is open, or else the innermost one.
    pub(super) fn step_of(&self, message: &MessageId) -> Option<&(Box<str>, u64)> {
        let began = if self.steps.len() > 1 { self.began.get(message) } else { None };
        began.filter(|step| self.steps.contains(step)).or_else(|| self.steps.last())
    }

    /// Ends a step; its number and its update.
    pub(super) fn end_step(&mut self, name: &str) -> Option<(u64, Option<Value>)> {
        let at = self.steps.iter().rposition(|(open, _)| **open == *name)?;
        let number = self.steps.remove(at).1;
        let update = self.take_update();
        self.began.retain(|_, (_, step)| *step != number);
        Some((number, update))
    }

    /// The id under which a message is shown.
    pub(super) fn shown_id(&mut self, message: &MessageId) -> MessageId {
        if let Some((known, shown)) = &self.shown
            && known == message
        {
            return shown.clone();
        }
        let messages = self.fold.messages();
        let at = messages.iter().rposition(|known| known.id == *message);
        let shown = at.map_or_else(|| message.clone(), |at| shown_id(messages, at));
        self.shown = Some((message.clone(), shown.clone()));
        shown
    }

    /// The values: all complete messages and the state.
    pub(super) fn values(&mut self) -> Map<String, Value> {
        let mut values = own_state(self.fold.state());
        let (open, calls) = (&self.open, &self.calls);
        let is_open = |id: &MessageId| open.contains(id) || calls.values().any(|call| call.message == *id);
        let mut messages = without_open(self.fold.messages(), is_open);
        self.add_reasons(&mut messages);
        values.insert("messages".into(), messages.into());
        values
    }

    /// Adds the finish reasons to messages.
    fn add_reasons(&self, messages: &mut [Value]) {
        if self.reasons.is_empty() {
            return;
        }
        for message in messages {
            let reason = message["id"].as_str().and_then(|id| self.reasons.get(id));
            if let Some(reason) = reason {
                message["response_metadata"]["finish_reason"] = (&**reason).into();
            }
        }
    }

    /// The complete messages since the last update, without those of steps that are open, as the update of a node.
    pub(super) fn take_update(&mut self) -> Option<Value> {
        let (open, calls) = (&self.open, &self.calls);
        let is_open = |id: &MessageId| open.contains(id) || calls.values().any(|call| call.message == *id);
        let is_elsewhere = |id: &MessageId| self.began.get(id).is_some_and(|step| self.steps.contains(step));
        let messages = self.fold.messages();
        let is_fresh =
            |message: &&Message| !self.reported.contains(&message.id) && !is_elsewhere(&message.id);
        let fresh = messages.get(self.before..).unwrap_or_default().iter().filter(is_fresh);
        let complete: Vec<Message> = fresh.take_while(|message| !is_open(&message.id)).cloned().collect();
        let mut update = without_open(&complete, |_| false);
        self.reported.extend(complete.into_iter().map(|message| message.id.clone()));
        self.before = self.before.min(messages.len());
        while let Some(next) = messages.get(self.before)
            && self.reported.remove(&next.id)
        {
            self.before += 1;
        }
        self.add_reasons(&mut update);
        (!update.is_empty()).then(|| json!({ "messages": update }))
    }

    /// The name of the tool of a call.
    pub(super) fn tool_name(&mut self, call: &ToolCallId) -> Option<Box<str>> {
        let made = self.fold.messages().iter().rev().flat_map(|message| message.tool_calls());
        made.into_iter().find(|made| made.id == *call).map(|made| made.name.clone())
    }

    pub(super) fn task_id(&self, number: u64) -> String {
        format!("{}-{number}", self.run)
    }
}
