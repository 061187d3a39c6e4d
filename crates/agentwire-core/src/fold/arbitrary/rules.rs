//! A second, simple form of the order rules: the state that the generator needs to follow them.

use std::collections::{HashMap, HashSet};

use super::sorted;
use crate::event::{Body, EncryptedEntity, Event, Message, Role, SubagentId};

/// The order rules of AG-UI 1.0, as its strict client checks them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(super) phase: Phase,
    pub(super) texts: HashSet<String>,
    pub(super) calls: HashSet<String>,
    pub(super) reasonings: HashSet<String>,
    pub(super) spans: HashSet<String>,
    pub(super) steps: HashSet<(Option<SubagentId>, String)>,
    pub(super) subagents: HashSet<SubagentId>,
    pub(super) known_subagents: HashSet<SubagentId>,
    pub(super) owners: HashMap<(Bucket, String), Option<SubagentId>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Phase {
    #[default]
    Empty,
    Active,
    Finished,
    Errored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Bucket {
    Message,
    Call,
    Activity,
    Reasoning,
}

impl Rules {
    /// The open items, for comparison.
    pub(crate) fn open(&self) -> Vec<String> {
        let mut open = Vec::new();
        open.extend(sorted(&self.texts).into_iter().map(|id| format!("text {id}")));
        open.extend(sorted(&self.calls).into_iter().map(|id| format!("call {id}")));
        open.extend(sorted(&self.reasonings).into_iter().map(|id| format!("reasoning {id}")));
        open.extend(sorted(&self.spans).into_iter().map(|id| format!("span {id}")));
        open.extend(sorted(&self.steps).into_iter().map(|step| format!("step {step:?}")));
        open.extend(sorted(&self.subagents).into_iter().map(|id| format!("subagent {id}")));
        open
    }

    /// Applies one event, or returns the rule that it breaks.
    pub(crate) fn accept(&mut self, event: &Event) -> Result<(), String> {
        use Bucket::{Activity, Call, Message as Text, Reasoning};
        let tag = &event.subagent;
        match (self.phase, &event.body) {
            (Phase::Empty | Phase::Finished | Phase::Errored, Body::RunStarted(started)) => {
                *self = Self { phase: Phase::Active, ..Self::default() };
                for message in started.input.iter().flat_map(|input| &input.messages) {
                    self.seed(message, false);
                }
                return Ok(());
            }
            (Phase::Empty | Phase::Active | Phase::Finished, Body::RunError(_)) => {
                self.phase = Phase::Errored;
                return Ok(());
            }
            (Phase::Active, Body::RunStarted(_)) => return Err("a run is active".into()),
            (Phase::Active, _) => {}
            (phase, _) => return Err(format!("not in phase {phase:?}")),
        }
        match &event.body {
            Body::RunFinished(_) => {
                if !self.open().is_empty() {
                    return Err(format!("open at the end: {:?}", self.open()));
                }
                self.phase = Phase::Finished;
            }
            Body::TextStart { message, .. } => {
                self.claim(Text, message, tag)?;
                opened(self.texts.insert(message.to_string()), message)?;
            }
            Body::TextDelta { message, .. } => {
                self.agrees(Text, message, tag)?;
                closed(self.texts.contains(&**message), message)?;
            }
            Body::TextEnd { message } => {
                self.agrees(Text, message, tag)?;
                closed(self.texts.remove(&**message), message)?;
            }
            Body::ToolStart { call, parent, .. } => {
                let inherited =
                    parent.as_ref().and_then(|id| self.owners.get(&(Text, id.to_string()))).cloned();
                if let (Some(inherited), Some(tag)) = (&inherited, tag)
                    && inherited.as_ref() != Some(tag)
                {
                    return Err(format!("call {call} is not of the owner of its parent"));
                }
                match self.owners.get(&(Call, call.to_string())) {
                    Some(owner) => {
                        let claimed = if tag.is_some() { Some(tag.clone()) } else { inherited };
                        if claimed.is_some_and(|claimed| claimed != *owner) {
                            return Err(format!("call {call} has another owner"));
                        }
                    }
                    None => {
                        let owner = tag.clone().or(inherited.flatten());
                        self.owners.insert((Call, call.to_string()), owner);
                    }
                }
                opened(self.calls.insert(call.to_string()), call)?;
            }
            Body::ToolArgs { call, .. } => {
                self.agrees(Call, call, tag)?;
                closed(self.calls.contains(&**call), call)?;
            }
            Body::ToolEnd { call } => {
                self.agrees(Call, call, tag)?;
                closed(self.calls.remove(&**call), call)?;
            }
            Body::ToolResult(result) => {
                self.owners.insert((Text, result.message.to_string()), tag.clone());
            }
            Body::ReasoningStart { message, .. } => {
                self.claim(Reasoning, message, tag)?;
                opened(self.spans.insert(message.to_string()), message)?;
            }
            Body::ReasoningEnd { message } => {
                self.agrees(Reasoning, message, tag)?;
                closed(self.spans.remove(&**message), message)?;
            }
            Body::ReasoningMessageStart { message } => {
                self.claim(Reasoning, message, tag)?;
                opened(self.reasonings.insert(message.to_string()), message)?;
            }
            Body::ReasoningDelta { message, .. } => {
                self.agrees(Reasoning, message, tag)?;
                closed(self.reasonings.contains(&**message), message)?;
            }
            Body::ReasoningMessageEnd { message } => {
                self.agrees(Reasoning, message, tag)?;
                closed(self.reasonings.remove(&**message), message)?;
            }
            Body::ReasoningEncrypted { entity: EncryptedEntity::ToolCall(call), .. } => {
                self.agrees(Call, call, tag)?;
            }
            Body::ReasoningEncrypted { entity: EncryptedEntity::Message(message), .. } => {
                let is_text = self.owners.contains_key(&(Text, message.to_string()));
                self.agrees(if is_text { Text } else { Reasoning }, message, tag)?;
            }
            Body::StepStarted { name } => opened(self.steps.insert((tag.clone(), name.to_string())), name)?,
            Body::StepFinished { name } => closed(self.steps.remove(&(tag.clone(), name.to_string())), name)?,
            Body::SubagentStarted(started) => {
                let id = tag.clone().ok_or("a subagent without an id")?;
                if let Some(parent) = &started.parent_subagent
                    && !self.known_subagents.contains(parent)
                {
                    return Err(format!("parent {parent} was not started"));
                }
                opened(self.known_subagents.insert(id.clone()), &id)?;
                self.subagents.insert(id);
            }
            Body::SubagentFinished { .. } | Body::SubagentError { .. } => {
                let id = tag.clone().ok_or("a subagent without an id")?;
                closed(self.subagents.remove(&id), &id)?;
            }
            Body::ActivitySnapshot { message, replace: Some(false), .. } => {
                self.owners.entry((Activity, message.to_string())).or_insert_with(|| tag.clone());
            }
            Body::ActivitySnapshot { message: id, .. } | Body::CollaborationStart { id, .. } => {
                self.owners.insert((Activity, id.to_string()), tag.clone());
            }
            Body::ActivityDelta { message: id, .. }
            | Body::CollaborationTask { id, .. }
            | Body::CollaborationEnd { id } => self.agrees(Activity, id, tag)?,
            Body::Citation(source) => {
                self.owners.insert((Activity, source.id.to_string()), tag.clone());
            }
            Body::File(file) => {
                self.owners.insert((Activity, file.id.to_string()), tag.clone());
            }
            Body::Block(block) => {
                self.owners.insert((Activity, block.id.to_string()), tag.clone());
            }
            Body::MessagesSnapshot { messages } => {
                for message in messages {
                    self.seed(message, true);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn seed(&mut self, message: &Message, anew: bool) {
        let bucket = match message.role() {
            Role::Reasoning => Bucket::Reasoning,
            Role::Activity => Bucket::Activity,
            _ => Bucket::Message,
        };
        let calls = message.tool_calls().iter().map(|call| (Bucket::Call, call.id.to_string()));
        for key in calls.chain([(bucket, message.id.to_string())]) {
            if anew || !self.owners.contains_key(&key) {
                self.owners.insert(key, message.subagent.clone());
            }
        }
    }

    fn agrees(&self, bucket: Bucket, id: &str, tag: &Option<SubagentId>) -> Result<(), String> {
        match self.owners.get(&(bucket, id.to_owned())) {
            Some(owner) if tag.is_some() && owner != tag => {
                Err(format!("{bucket:?} {id} is of {owner:?}, not of {tag:?}"))
            }
            _ => Ok(()),
        }
    }

    fn claim(&mut self, bucket: Bucket, id: &str, tag: &Option<SubagentId>) -> Result<(), String> {
        self.agrees(bucket, id, tag)?;
        self.owners.entry((bucket, id.to_owned())).or_insert_with(|| tag.clone());
        Ok(())
    }
}

fn opened(is_new: bool, id: &str) -> Result<(), String> {
    if is_new { Ok(()) } else { Err(format!("{id} is already open, or was used before")) }
}

fn closed(was_open: bool, id: &str) -> Result<(), String> {
    if was_open { Ok(()) } else { Err(format!("{id} is not open")) }
}
