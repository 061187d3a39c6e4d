//! Subscribers: one method per kind of event, under the names of AG-UI and HAI.

use std::{
    cell::RefCell,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use agentwire_core::{
    event::{Body, Event, Message, MessageId, RunInput, ToolCallId},
    fold::Fold,
};
use serde_json::Value;

use crate::{error::ClientError, run::Recovery};

/// The run as a subscriber sees it: before the event of the call is applied.
pub struct RunView<'a> {
    fold: RefCell<&'a mut Fold>,
    /// The request.
    pub input: &'a RunInput,
}

impl RunView<'_> {
    /// The messages so far, cloned. Costs the length of the conversation.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        self.fold.borrow_mut().messages().to_vec()
    }

    /// The state so far, cloned.
    #[must_use]
    pub fn state(&self) -> Value {
        self.fold.borrow().state().clone()
    }
}

impl std::fmt::Debug for RunView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunView").field("run", &self.input.run).finish_non_exhaustive()
    }
}

macro_rules! subscriber {
    ($($(#[doc = $doc:literal])+ $name:ident($($argument:ident: $kind:ty),*);)+) => {
        /// Follows the runs of an agent. All methods do nothing unless implemented.
        ///
        /// The buffers of content and argument events lack the event's own piece, as in the standard clients; those of
        /// the end events are complete. A panic in a method is caught and counted; it never ends a run.
        #[allow(unused_variables)]
        pub trait Subscriber: Send + Sync {
            $($(#[doc = $doc])+ fn $name(&self, run: &RunView<'_>, $($argument: $kind),*) {})+

            /// A frame as it was received, encoded again; repetitions after a reconnect are left out. `run` calls it
            /// only if [`Subscriber::wants_frames`].
            fn on_frame(&self, frame: &[u8]) {}
            /// True if [`Subscriber::on_frame`] is to be called, which costs a copy of each frame.
            fn wants_frames(&self) -> bool {
                false
            }
            /// A method of this subscriber has panicked.
            fn on_subscriber_error(&self) {}
        }
    };
}

subscriber! {
    /// The request is about to be sent.
    on_run_initialized();
    /// The run is over, whatever its end.
    on_run_finalized();
    /// The run failed.
    on_run_failed(error: &ClientError);
    /// Every event, before the method of its kind.
    on_event(event: &Event);
    /// RUN_STARTED.
    on_run_started(event: &Event);
    /// RUN_FINISHED.
    on_run_finished(event: &Event);
    /// RUN_ERROR.
    on_run_error(event: &Event);
    /// STEP_STARTED.
    on_step_started(event: &Event, name: &str);
    /// STEP_FINISHED.
    on_step_finished(event: &Event, name: &str);
    /// TEXT_MESSAGE_START.
    on_text_message_start(event: &Event);
    /// TEXT_MESSAGE_CONTENT; `buffer` lacks the delta.
    on_text_message_content(event: &Event, buffer: &str);
    /// TEXT_MESSAGE_END; `buffer` is the whole text.
    on_text_message_end(event: &Event, buffer: &str);
    /// BUSINESS_DATA_START of HAI: a message opens.
    on_business_data_start(event: &Event);
    /// BUSINESS_DATA_CONTENT of HAI: text or an output block; `buffer` is the text before it.
    on_business_data_content(event: &Event, buffer: &str);
    /// BUSINESS_DATA_END of HAI: a message closes.
    on_business_data_end(event: &Event, buffer: &str);
    /// AGENT_COLLABORATIVE_MESSAGE_START of HAI: a hand-over.
    on_collaboration_start(event: &Event, from: &str, to: &str);
    /// AGENT_COLLABORATIVE_MESSAGE_CONTENT of HAI: its task.
    on_collaboration_task(event: &Event);
    /// AGENT_COLLABORATIVE_MESSAGE_END of HAI.
    on_collaboration_end(event: &Event);
    /// TOOL_CALL_START.
    on_tool_call_start(event: &Event, name: &str);
    /// TOOL_CALL_ARGS; `buffer` lacks the delta.
    on_tool_call_args(event: &Event, name: &str, buffer: &str);
    /// TOOL_CALL_END; `arguments` are parsed, `{}` if they are not JSON.
    on_tool_call_end(event: &Event, name: &str, arguments: &Value);
    /// TOOL_CALL_RESULT.
    on_tool_call_result(event: &Event);
    /// STATE_SNAPSHOT.
    on_state_snapshot(event: &Event);
    /// STATE_DELTA.
    on_state_delta(event: &Event);
    /// MESSAGES_SNAPSHOT.
    on_messages_snapshot(event: &Event);
    /// ACTIVITY_SNAPSHOT and ACTIVITY_DELTA.
    on_activity(event: &Event);
    /// REASONING_START to REASONING_END.
    on_reasoning(event: &Event);
    /// SUBAGENT_STARTED, SUBAGENT_FINISHED and SUBAGENT_ERROR.
    on_subagent(event: &Event);
    /// RAW.
    on_raw(event: &Event);
    /// CUSTOM.
    on_custom(event: &Event, name: &str);
    /// CUSTOM `hai.run_status`: the run was paused.
    on_paused(event: &Event);
    /// CUSTOM `hai.run_status`: the run was resumed.
    on_resumed(event: &Event);
    /// The messages have changed; `run` has the new ones.
    on_messages_changed();
    /// The state has changed; `run` has the new one.
    on_state_changed();
    /// The connection broke; a new one follows after the delay.
    on_reconnecting(attempt: u32, delay: std::time::Duration);
    /// The stream continues.
    on_reconnected(recovery: Recovery);
}

/// The subscribers of an agent.
#[derive(Clone, Default)]
pub(crate) struct Subscribers(Arc<Mutex<Vec<Entry>>>);

/// A subscriber and its number.
type Entry = (u64, Arc<dyn Subscriber>);

impl Subscribers {
    pub(crate) fn add(&self, id: u64, subscriber: Arc<dyn Subscriber>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((id, subscriber));
    }

    pub(crate) fn remove(&self, id: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| *known != id);
    }

    fn list(&self) -> Vec<Arc<dyn Subscriber>> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().map(|(_, subscriber)| Arc::clone(subscriber)).collect()
    }
}

/// Calls the subscribers of one run, and keeps the buffers for them.
pub(crate) struct Dispatcher {
    subscribers: Subscribers,
    texts: HashMap<MessageId, String>,
    calls: HashMap<ToolCallId, (Box<str>, String)>,
}

impl Dispatcher {
    pub(crate) fn new(subscribers: Subscribers) -> Self {
        Self { subscribers, texts: HashMap::new(), calls: HashMap::new() }
    }

    /// Calls a method of all subscribers.
    pub(crate) fn each(
        &self,
        fold: &mut Fold,
        input: &RunInput,
        call: impl Fn(&dyn Subscriber, &RunView<'_>),
    ) {
        for subscriber in self.subscribers.list() {
            let view = RunView { fold: RefCell::new(fold), input };
            guarded(&*subscriber, || call(&*subscriber, &view));
        }
    }

    pub(crate) fn frame(&self, bytes: &[u8]) {
        for subscriber in self.subscribers.list() {
            if subscriber.wants_frames() {
                guarded(&*subscriber, || subscriber.on_frame(bytes));
            }
        }
    }

    pub(crate) fn wants_frames(&self) -> bool {
        self.subscribers.list().iter().any(|subscriber| subscriber.wants_frames())
    }

    /// Calls the methods of an event, applies it, and reports the changes.
    pub(crate) fn event(&mut self, event: &Event, fold: &mut Fold, input: &RunInput) {
        let subscribers = self.subscribers.list();
        if subscribers.is_empty() {
            fold.apply(event);
            return;
        }
        for subscriber in &subscribers {
            let view = RunView { fold: RefCell::new(fold), input };
            guarded(&**subscriber, || subscriber.on_event(&view, event));
            guarded(&**subscriber, || self.call(&**subscriber, &view, event));
        }
        self.keep(event);
        let state = matches!(event.body, Body::StateSnapshot { .. } | Body::StateDelta { .. });
        let messages = !state && !event.body.builds_nothing();
        fold.apply(event);
        for subscriber in &subscribers {
            let view = RunView { fold: RefCell::new(fold), input };
            if state {
                guarded(&**subscriber, || subscriber.on_state_changed(&view));
            }
            if messages {
                guarded(&**subscriber, || subscriber.on_messages_changed(&view));
            }
        }
    }

    /// Updates the buffers after the calls.
    fn keep(&mut self, event: &Event) {
        match &event.body {
            Body::TextStart { message, .. } => {
                self.texts.insert(message.clone(), String::new());
            }
            Body::TextDelta { message, delta } => {
                if let Some(text) = self.texts.get_mut(message) {
                    text.push_str(delta);
                }
            }
            Body::TextEnd { message } => {
                self.texts.remove(message);
            }
            Body::ToolStart { call, name, .. } => {
                self.calls.insert(call.clone(), (name.clone(), String::new()));
            }
            Body::ToolArgs { call, delta } => {
                if let Some((_, text)) = self.calls.get_mut(call) {
                    text.push_str(delta);
                }
            }
            Body::ToolEnd { call } => {
                self.calls.remove(call);
            }
            _ => {}
        }
    }

    fn call(&self, to: &dyn Subscriber, run: &RunView<'_>, event: &Event) {
        let text = |message: &MessageId| self.texts.get(message).map_or("", String::as_str);
        match &event.body {
            Body::RunStarted(_) => to.on_run_started(run, event),
            Body::RunFinished(_) => to.on_run_finished(run, event),
            Body::RunError(_) => to.on_run_error(run, event),
            Body::StepStarted { name } => to.on_step_started(run, event, name),
            Body::StepFinished { name } => to.on_step_finished(run, event, name),
            Body::TextStart { .. } => {
                to.on_text_message_start(run, event);
                to.on_business_data_start(run, event);
            }
            Body::TextDelta { message, .. } => {
                to.on_text_message_content(run, event, text(message));
                to.on_business_data_content(run, event, text(message));
            }
            Body::TextEnd { message } => {
                to.on_text_message_end(run, event, text(message));
                to.on_business_data_end(run, event, text(message));
            }
            Body::Block(block) => to.on_business_data_content(run, event, text(&block.message)),
            Body::CollaborationStart { from, to: receiver, .. } => {
                to.on_collaboration_start(run, event, from, receiver);
            }
            Body::CollaborationTask { .. } => to.on_collaboration_task(run, event),
            Body::CollaborationEnd { .. } => to.on_collaboration_end(run, event),
            Body::ToolStart { name, .. } => to.on_tool_call_start(run, event, name),
            Body::ToolArgs { call, .. } => {
                let (name, buffer) = self.calls.get(call).map_or(("", ""), |(name, text)| (name, text));
                to.on_tool_call_args(run, event, name, buffer);
            }
            Body::ToolEnd { call } => {
                let (name, buffer) = self.calls.get(call).map_or(("", ""), |(name, text)| (name, text));
                let arguments = serde_json::from_str(buffer).unwrap_or_else(|_| serde_json::json!({}));
                to.on_tool_call_end(run, event, name, &arguments);
            }
            Body::ToolResult(_) => to.on_tool_call_result(run, event),
            Body::StateSnapshot { .. } => to.on_state_snapshot(run, event),
            Body::StateDelta { .. } => to.on_state_delta(run, event),
            Body::MessagesSnapshot { .. } => to.on_messages_snapshot(run, event),
            Body::ActivitySnapshot { .. } | Body::ActivityDelta { .. } => to.on_activity(run, event),
            Body::ReasoningStart { .. }
            | Body::ReasoningMessageStart { .. }
            | Body::ReasoningDelta { .. }
            | Body::ReasoningMessageEnd { .. }
            | Body::ReasoningEnd { .. }
            | Body::ReasoningEncrypted { .. } => to.on_reasoning(run, event),
            Body::SubagentStarted(_) | Body::SubagentFinished { .. } | Body::SubagentError { .. } => {
                to.on_subagent(run, event);
            }
            Body::Raw { .. } => to.on_raw(run, event),
            Body::Custom { name, value } => {
                to.on_custom(run, event, name);
                if &**name == "hai.run_status" {
                    let status = value.clone().into_object().and_then(|it| it.get_str("status"));
                    match status.as_deref() {
                        Some("paused") => to.on_paused(run, event),
                        Some(_) => to.on_resumed(run, event),
                        None => {}
                    }
                }
            }
            _ => {}
        }
    }
}

fn guarded(subscriber: &dyn Subscriber, call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        let _ = catch_unwind(AssertUnwindSafe(|| subscriber.on_subscriber_error()));
    }
}
