//! Rules at work in one run.
//!
//! Most events need no memory. Calls do: the tool is only named at their start, and a value inside streamed arguments
//! is only found when they are complete, so the arguments of a call that a rule looks into are held until its end. The
//! state does too: a change may touch what a rule hides in many ways, so the true state is kept beside the shown one, and
//! what is told is the difference between two shown ones.

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

/// The most bytes of arguments that are held at once: as much as one frame of an agent may have.
const MAX_HELD: usize = 8 << 20;

/// The rules of one run.
pub(super) struct Rewrite {
    rules: Arc<[Rule]>,
    thread: ThreadId,
    run: RunId,
    calls: HashMap<ToolCallId, Call>,
    /// How many bytes of arguments are held.
    held: usize,
    /// The state as the agent has it, and as it is shown, where a rule looks into it.
    state: Option<(Value, Value)>,
    /// Whether something is hidden, so that native events must not tell it.
    is_discreet: bool,
}

/// A call of a tool.
struct Call {
    /// The tool as the agent calls it.
    tool: Box<str>,
    is_dropped: bool,
    /// The arguments so far, where they are held.
    held: Option<String>,
}

impl Rewrite {
    pub(super) fn new(rules: Arc<[Rule]>, run: &RunContext) -> Self {
        let is_discreet = rules.iter().any(|rule| !matches!(rule.action, Action::Rename { .. }));
        Self {
            rules,
            thread: run.thread.clone(),
            run: run.run.clone(),
            calls: HashMap::new(),
            held: 0,
            state: None,
            is_discreet,
        }
    }

    /// Looks at what the agent is asked, and calls tools by the names that it knows.
    pub(super) fn begin(&mut self, input: &mut RunInput) {
        for message in &mut input.messages {
            let MessageBody::Assistant { tool_calls: Some(calls), .. } = &mut message.body else { continue };
            for call in calls {
                let old =
                    self.rules.iter().filter_map(Rule::old_name_of_tool).find(|(new, _)| *new == &*call.name);
                if let Some((_, old)) = old {
                    call.name = old.into();
                }
                self.learn(call.id.clone(), call.name.clone());
            }
        }
        if self.rules.iter().any(|rule| matches!(rule.target, Target::State(_))) {
            let state = input.state.as_ref().map_or_else(|| serde_json::json!({}), Json::to_value);
            self.state = Some((state.clone(), state));
        }
    }

    fn learn(&mut self, call: ToolCallId, tool: Box<str>) -> &mut Call {
        let is_dropped = self.rules.iter().any(|rule| rule.drops_calls_of(&tool));
        let call = match self.calls.entry(call) {
            Entry::Occupied(mut entry) => {
                self.held -= entry.get_mut().held.take().map_or(0, |held| held.len());
                entry.into_mut()
            }
            Entry::Vacant(entry) => entry.insert(Call { tool: tool.clone(), is_dropped, held: None }),
        };
        (call.tool, call.is_dropped) = (tool, is_dropped);
        call
    }

    /// Adds what the rules leave of an event to `out`.
    pub(super) fn event(&mut self, mut event: Event, out: &mut Vec<Event>) -> Result<(), UpstreamError> {
        if self.rules.is_empty() {
            out.push(event);
            return Ok(());
        }
        if let (true, Some(extra)) = (self.is_discreet, &mut event.extra) {
            extra.raw = None;
        }
        if let Body::ToolStart { call, name, .. } = &event.body {
            let looked_into = self.looks_into_arguments(name);
            self.learn(call.clone(), name.clone()).held = looked_into.then(String::new);
        }
        if let Some(call) = call_of(&event.body).filter(|call| !self.calls.contains_key(*call)) {
            // Nobody has named its tool; rules for any tool are for it too.
            let looked_into = self.looks_into_arguments("");
            self.learn(call.clone(), "".into()).held = looked_into.then(String::new);
        }
        let call = call_of(&event.body).and_then(|call| self.calls.get_mut(call));
        if call.as_ref().is_some_and(|call| call.is_dropped) {
            return Ok(());
        }
        let tool = call.as_ref().map(|call| call.tool.clone());
        let mut before = None;
        match (&mut event.body, call) {
            (Body::ToolArgs { call: id, delta }, Some(Call { held: Some(held), .. })) => {
                self.held += delta.len();
                if self.held > MAX_HELD {
                    let what = format!(
                        "the arguments of the call `{id}` are over {MAX_HELD} bytes, too much for a rule to look into"
                    );
                    return Err(UpstreamErrorKind::LimitExceeded(what.into()).into());
                }
                held.push_str(delta);
                return Ok(());
            }
            (Body::ToolEnd { call: id }, Some(call)) => {
                // What comes after the end of a call is still a call's.
                let held = call.held.as_mut().map(std::mem::take);
                if let Some(held) = held.filter(|held| !held.is_empty()) {
                    self.held -= held.len();
                    let delta = self.arguments(tool.as_deref().unwrap_or_default(), &held);
                    let body = Body::ToolArgs { call: id.clone(), delta: delta.into() };
                    before = Some(Event { body, extra: None, ..event.clone() });
                }
            }
            (Body::ToolResult(result), Some(_)) => self.result(tool.as_deref().unwrap_or_default(), result),
            (Body::MessagesSnapshot { messages }, _) => self.messages(messages),
            (Body::StateSnapshot { snapshot }, _) => {
                if let Some(shown) = self.whole_state(snapshot.to_value()) {
                    *snapshot = Json::from(&shown);
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

    /// The rules that are about the event as such.
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
                // What is not understood any more cannot be said, and what was hidden must not be.
                Err(()) => return,
            }
        }
        // Last, so that every rule goes by the agent's own names.
        self.rename(&mut event.body);
        out.push(event);
    }

    /// The event with other values inside; `None` if there were none.
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

    fn looks_into_arguments(&self, tool: &str) -> bool {
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

    /// The whole of a call's arguments as they are shown.
    fn arguments(&self, tool: &str, text: &str) -> String {
        let mut shown = text.to_owned();
        for rule in self.rules.iter() {
            let Target::Call { arguments: true, pointer, .. } = &rule.target else { continue };
            if !rule.fits_tool(tool) {
                continue;
            }
            let (is_all, pointer) = (pointer.is_none(), pointer.clone().unwrap_or_else(Pointer::all));
            shown = match rewritten(&shown, |value| pointer.act(&rule.action, value)) {
                Some(Some(changed)) => changed,
                // Neither members nor elements to hide one by one.
                Some(None) if is_all && !is_empty(&shown) => hidden(&rule.action, &shown),
                Some(None) => continue,
                // Nobody can tell what is in it.
                None => hidden(&rule.action, &shown),
            };
        }
        shown
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
                (Some(pointer), action, Content::Text(text)) => look_into(pointer, action, text),
                (Some(pointer), action, Content::Parts(parts)) => {
                    for part in parts {
                        if let ContentPart::Text { text, .. } = part {
                            look_into(pointer, action, text);
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
                    self.learn(call.id.clone(), call.name.clone());
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
                        if self.looks_into_arguments(&call.name) && !call.arguments.is_empty() {
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

    /// The state as it is shown, if a rule looks into it.
    fn whole_state(&mut self, state: Value) -> Option<Value> {
        self.state.as_ref()?;
        let mut shown = state.clone();
        for rule in self.rules.iter() {
            if let Target::State(pointer) = &rule.target {
                pointer.act(&rule.action, &mut shown);
            }
        }
        self.state = Some((state, shown.clone()));
        Some(shown)
    }

    /// What is told about a change of the state.
    fn changed_state(&mut self, change: &Patch) -> Option<Body> {
        let (mut state, was) = self.state.clone()?;
        let applied = patch::apply(&mut state, change, &patch::Limits::default());
        let shown = self.whole_state(state)?;
        match applied {
            Ok(()) => {
                let patch = patch::diff(&was, &shown);
                (!patch.0.is_empty()).then_some(Body::StateDelta { patch })
            }
            // The client's would not apply either. It is told what the state is instead.
            Err(_) => Some(Body::StateSnapshot { snapshot: Json::from(&shown) }),
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

/// Whether a JSON text is `{}`, `[]` or `null`: there is nothing in it to hide.
fn is_empty(text: &str) -> bool {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object.is_empty(),
        Ok(Value::Array(items)) => items.is_empty(),
        Ok(Value::Null) => true,
        _ => false,
    }
}

/// A text that cannot be looked into: hidden as a whole by a rule that hides.
fn hidden(action: &Action, text: &str) -> String {
    match action {
        Action::Redact { with } => Value::from(with.as_str()).to_string(),
        Action::Drop => "{}".to_owned(),
        Action::Rename { .. } => text.to_owned(),
    }
}

fn look_into(pointer: &Pointer, action: &Action, text: &mut Box<str>) {
    match rewritten(text, |value| pointer.act(action, value)) {
        Some(Some(changed)) => *text = changed.into(),
        Some(None) => {}
        // Half an object, or one too deep to be read: nobody can tell what is in it. Other text has no values.
        None if text.trim_start().starts_with('{') => *text = hidden(action, text).into(),
        None => {}
    }
}

#[cfg(test)]
mod tests;
