//! Applies rules to the events of one run.
//!
//! Most events need no memory. Tool calls do: only the start names the tool, and a value in streamed arguments is found
//! only when they are complete, so arguments with a rule are buffered until their end. The state does too: a patch can
//! touch a hidden value in many ways, so the original state is kept beside the visible one, and the emitted patch is the
//! difference between two visible states.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use agentwire_core::{
    event::{
        Body, Content, ContentPart, Event, Message, MessageBody, RunId, RunInput, ThreadId, ToolCallId,
        ToolResult,
    },
    format::{Options, Setup, ag_ui},
    framing::{Frame, Payload},
    json::Json,
    patch::{self, Patch},
};
use serde_json::Value;

use super::{
    super::RunContext,
    pointer::{Pointer, rewritten},
    rule::{Action, Rule, Target, name_mut, name_of},
};
use crate::{
    error::{UpstreamError, UpstreamErrorKind},
    stream::log_codec::Encoder,
};

/// The largest number of buffered bytes of arguments: as much as one frame of an agent.
const MAX_BUFFERED: usize = 8 << 20;

/// The rules of one run.
pub(super) struct Rewrite {
    rules: Arc<[Rule]>,
    thread: ThreadId,
    run: RunId,
    calls: HashMap<ToolCallId, RewrittenCall>,
    /// The number of buffered bytes of arguments.
    buffered: usize,
    /// The original and the visible state, if a rule applies to the state.
    state: Option<(Value, Value)>,
    /// True if values are hidden, so that attached raw events must be removed.
    hides_values: bool,
}

/// A tool call of the run.
struct RewrittenCall {
    /// The agent's name of the tool.
    tool: Box<str>,
    is_dropped: bool,
    /// The buffered arguments, if a rule applies to them.
    arguments: Option<String>,
}

impl Rewrite {
    pub(super) fn new(rules: Arc<[Rule]>, run: &RunContext) -> Self {
        Self::with_ids(rules, run.thread.clone(), run.run.clone())
    }

    pub(super) fn with_ids(rules: Arc<[Rule]>, thread: ThreadId, run: RunId) -> Self {
        let hides_values = rules.iter().any(|rule| !matches!(rule.action, Action::Rename { .. }));
        Self { rules, thread, run, calls: HashMap::new(), buffered: 0, state: None, hides_values }
    }

    /// Reads the run input, and restores the agent's names of renamed tools in it.
    pub(super) fn begin(&mut self, input: &mut RunInput) {
        for message in &mut input.messages {
            let MessageBody::Assistant { tool_calls: Some(calls), .. } = &mut message.body else { continue };
            for call in calls {
                let old =
                    self.rules.iter().filter_map(Rule::old_name_of_tool).find(|(new, _)| *new == &*call.name);
                if let Some((_, old)) = old {
                    call.name = old.into();
                }
                self.register(call.id.clone(), call.name.clone());
            }
        }
        if self.rules.iter().any(|rule| matches!(rule.target, Target::State(_))) {
            let state = input.state.as_ref().map_or_else(|| serde_json::json!({}), Json::to_value);
            self.state = Some((state.clone(), state));
        }
    }

    fn register(&mut self, call: ToolCallId, tool: Box<str>) -> &mut RewrittenCall {
        let is_dropped = self.rules.iter().any(|rule| rule.drops_calls_of(&tool));
        let call = match self.calls.entry(call) {
            Entry::Occupied(mut entry) => {
                self.buffered -= entry.get_mut().arguments.take().map_or(0, |arguments| arguments.len());
                entry.into_mut()
            }
            Entry::Vacant(entry) => {
                entry.insert(RewrittenCall { tool: tool.clone(), is_dropped, arguments: None })
            }
        };
        (call.tool, call.is_dropped) = (tool, is_dropped);
        call
    }

    /// Applies the rules to an event, and adds the result to `out`.
    pub(super) fn event(&mut self, mut event: Event, out: &mut Vec<Event>) -> Result<(), UpstreamError> {
        if self.rules.is_empty() {
            out.push(event);
            return Ok(());
        }
        if let (true, Some(extra)) = (self.hides_values, &mut event.extra) {
            extra.raw = None;
        }
        if let Body::ToolStart { call, name, .. } = &event.body {
            let is_buffered = self.buffers_arguments(name);
            self.register(call.clone(), name.clone()).arguments = is_buffered.then(String::new);
        }
        if let Some(call) = call_of(&event.body).filter(|call| !self.calls.contains_key(*call)) {
            // The tool is unknown; rules for all tools apply.
            let is_buffered = self.buffers_arguments("");
            self.register(call.clone(), "".into()).arguments = is_buffered.then(String::new);
        }
        let call = call_of(&event.body).and_then(|call| self.calls.get_mut(call));
        if call.as_ref().is_some_and(|call| call.is_dropped) {
            return Ok(());
        }
        let tool = call.as_ref().map(|call| call.tool.clone());
        let mut before = None;
        match (&mut event.body, call) {
            (Body::ToolArgs { call: id, delta }, Some(RewrittenCall { arguments: Some(arguments), .. })) => {
                self.buffered += delta.len();
                if self.buffered > MAX_BUFFERED {
                    let message = format!(
                        "the arguments of the call `{id}` are over {MAX_BUFFERED} bytes, too much for a rule to look into"
                    );
                    return Err(UpstreamErrorKind::LimitExceeded(message.into()).into());
                }
                arguments.push_str(delta);
                return Ok(());
            }
            (Body::ToolEnd { call: id }, Some(call)) => {
                // Events after the end of a call still belong to it.
                let arguments = call.arguments.as_mut().map(std::mem::take);
                if let Some(arguments) = arguments.filter(|arguments| !arguments.is_empty()) {
                    self.buffered -= arguments.len();
                    let delta = self.arguments(tool.as_deref().unwrap_or_default(), &arguments);
                    let body = Body::ToolArgs { call: id.clone(), delta: delta.into() };
                    before = Some(Event { body, extra: None, ..event.clone() });
                }
            }
            (Body::ToolResult(result), Some(_)) => self.result(tool.as_deref().unwrap_or_default(), result),
            (Body::MessagesSnapshot { messages }, _) => self.messages(messages),
            (Body::StateSnapshot { snapshot }, _) => {
                if let Some(visible) = self.whole_state(snapshot.to_value()) {
                    *snapshot = Json::from(&visible);
                }
            }
            (Body::StateDelta { patch }, _) if self.state.is_some() => match self.changed_state(patch) {
                None => return Ok(()),
                Some(body) => event.body = body,
            },
            _ => {}
        }
        for event in before.into_iter().chain([event]) {
            self.finish(event, tool.as_deref(), out);
        }
        Ok(())
    }

    /// Applies the rules for the event itself.
    fn finish(&self, mut event: Event, tool: Option<&str>, out: &mut Vec<Event>) {
        if self.rules.iter().any(|rule| rule.drops(&event, tool)) {
            return;
        }
        let inner = |rule: &&Rule| matches!(rule.target, Target::Event(_)) && rule.fits(&event, tool);
        let inner: Vec<_> = self.rules.iter().filter(inner).collect();
        if !inner.is_empty() {
            match self.edit(&event, &inner) {
                Ok(None) => {}
                Ok(Some(edited)) => event = edited,
                // The edited event is invalid, and the original must stay hidden.
                Err(()) => return,
            }
        }
        // Last, so that all rules match the agent's names.
        self.rename(&mut event.body);
        out.push(event);
    }

    /// The event with changed values; `None` if none changed.
    fn edit(&self, event: &Event, rules: &[&Rule]) -> Result<Option<Event>, ()> {
        let logged = Encoder::new(&self.thread, &self.run).encode(event).ok_or(())?;
        let mut value: Value = serde_json::from_slice(&logged).map_err(|_| ())?;
        let mut changed = false;
        for rule in rules {
            if let Target::Event(pointer) = &rule.target {
                changed |= pointer.act(&rule.action, &mut value);
            }
        }
        if !changed {
            return Ok(None);
        }
        let options = Options::default();
        let setup = Setup { thread: self.thread.clone(), run: self.run.clone(), options: &options };
        let mut reader = ag_ui::FORMAT.reader.ok_or(())?(&setup);
        let (text, mut events) = (value.to_string(), Vec::new());
        let frame = Frame { index: 0, offset: 0, event: None, id: None, data: Payload::Text(&text) };
        reader.read(&frame, &mut events).map_err(|error| {
            tracing::debug!(kind = event.kind(), %error, "an event was dropped: no rule may leave it like that");
        })?;
        events.pop().ok_or(()).map(Some)
    }

    fn buffers_arguments(&self, tool: &str) -> bool {
        let looks =
            |rule: &Rule| matches!(rule.target, Target::Call { arguments: true, .. }) && rule.fits_tool(tool);
        self.rules.iter().any(looks)
    }

    fn rename_tool(&self, name: &mut Box<str>) {
        let new = self.rules.iter().find_map(|rule| rule.new_name_of_tool(name));
        if let Some(new) = new {
            *name = new.into();
        }
    }

    fn rename(&self, body: &mut Body) {
        if let Body::ToolStart { name, .. } = body {
            return self.rename_tool(name);
        }
        let Some(name) = name_of(body) else { return };
        let new = self.rules.iter().find_map(|rule| rule.new_name_of(body.kind(), name));
        if let (Some(new), Some(name)) = (new.map(Into::into), name_mut(body)) {
            *name = new;
        }
    }

    /// The visible arguments of a call.
    fn arguments(&self, tool: &str, text: &str) -> String {
        let mut visible = text.to_owned();
        for rule in self.rules.iter() {
            let Target::Call { arguments: true, pointer, .. } = &rule.target else { continue };
            if !rule.fits_tool(tool) {
                continue;
            }
            let (is_all, pointer) = (pointer.is_none(), pointer.clone().unwrap_or_else(Pointer::all));
            visible = match rewritten(&visible, |value| pointer.act(&rule.action, value)) {
                Some(Some(changed)) => changed,
                // There are no members or elements to hide individually.
                Some(None) if is_all && !is_empty(&visible) => hidden(&rule.action, &visible),
                Some(None) => continue,
                // Its values are unknown.
                None => hidden(&rule.action, &visible),
            };
        }
        visible
    }

    fn result(&self, tool: &str, result: &mut ToolResult) {
        self.content(tool, &mut result.content);
        let all = self.rules.iter().find(|rule| {
            matches!(rule.target, Target::Call { result: true, pointer: None, .. }) && rule.fits_tool(tool)
        });
        if let (Some(Rule { action: Action::Redact { with }, .. }), Some(error)) = (all, &mut result.error) {
            *error = with.as_str().into();
        }
    }

    fn content(&self, tool: &str, content: &mut Content) {
        for rule in self.rules.iter() {
            let Target::Call { result: true, pointer, .. } = &rule.target else { continue };
            if !rule.fits_tool(tool) {
                continue;
            }
            match (pointer, &rule.action, &mut *content) {
                (None, Action::Redact { with }, content) => *content = Content::from(with.as_str()),
                (None, ..) => {}
                (Some(pointer), action, Content::Text(text)) => rewrite_text(pointer, action, text),
                (Some(pointer), action, Content::Parts(parts)) => {
                    for part in parts {
                        if let ContentPart::Text { text, .. } = part {
                            rewrite_text(pointer, action, text);
                        }
                    }
                }
            }
        }
    }

    fn messages(&mut self, messages: &mut Vec<Message>) {
        for message in &*messages {
            if let MessageBody::Assistant { tool_calls: Some(calls), .. } = &message.body {
                for call in calls {
                    self.register(call.id.clone(), call.name.clone());
                }
            }
        }
        let is_dropped = |call: &ToolCallId| self.calls.get(call).is_some_and(|call| call.is_dropped);
        messages
            .retain(|message| !matches!(&message.body, MessageBody::Tool { call, .. } if is_dropped(call)));
        for message in messages {
            match &mut message.body {
                MessageBody::Assistant { tool_calls: Some(calls), .. } => {
                    calls.retain(|call| !is_dropped(&call.id));
                    for call in calls {
                        if self.buffers_arguments(&call.name) && !call.arguments.is_empty() {
                            call.arguments = self.arguments(&call.name, &call.arguments).into();
                        }
                        self.rename_tool(&mut call.name);
                    }
                }
                MessageBody::Tool { call, content, .. } => {
                    self.content(self.calls.get(call).map_or("", |call| &call.tool), content);
                }
                _ => {}
            }
        }
    }

    /// The visible state, if a rule applies to the state.
    fn whole_state(&mut self, state: Value) -> Option<Value> {
        self.state.as_ref()?;
        let mut visible = state.clone();
        for rule in self.rules.iter() {
            if let Target::State(pointer) = &rule.target {
                pointer.act(&rule.action, &mut visible);
            }
        }
        self.state = Some((state, visible.clone()));
        Some(visible)
    }

    /// The visible change of the state.
    fn changed_state(&mut self, change: &Patch) -> Option<Body> {
        let (mut state, was) = self.state.clone()?;
        let applied = patch::apply(&mut state, change, &patch::Limits::default());
        let visible = self.whole_state(state)?;
        match applied {
            Ok(()) => {
                let patch = patch::diff(&was, &visible);
                (!patch.0.is_empty()).then_some(Body::StateDelta { patch })
            }
            // It would not apply at the client either, which gets a snapshot instead.
            Err(_) => Some(Body::StateSnapshot { snapshot: Json::from(&visible) }),
        }
    }
}

fn call_of(body: &Body) -> Option<&ToolCallId> {
    match body {
        Body::ToolStart { call, .. } | Body::ToolArgs { call, .. } | Body::ToolEnd { call } => Some(call),
        Body::ToolResult(result) => Some(&result.call),
        _ => None,
    }
}

/// True if a JSON text is `{}`, `[]` or `null`, without values to hide.
fn is_empty(text: &str) -> bool {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object.is_empty(),
        Ok(Value::Array(items)) => items.is_empty(),
        Ok(Value::Null) => true,
        _ => false,
    }
}

/// A text whose values are unknown: hidden completely by a rule that hides.
fn hidden(action: &Action, text: &str) -> String {
    match action {
        Action::Redact { with } => Value::from(with.as_str()).to_string(),
        Action::Drop => "{}".to_owned(),
        Action::Rename { .. } => text.to_owned(),
    }
}

fn rewrite_text(pointer: &Pointer, action: &Action, text: &mut Box<str>) {
    match rewritten(text, |value| pointer.act(action, value)) {
        Some(Some(changed)) => *text = changed.into(),
        Some(None) => {}
        // An incomplete object, or one that is nested too deeply: its values are unknown. Other text has no values.
        None if text.trim_start().starts_with('{') => *text = hidden(action, text).into(),
        None => {}
    }
}

#[cfg(test)]
mod tests;
