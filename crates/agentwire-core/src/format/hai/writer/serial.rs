//! Order `serial`: nothing is written inside an open message or call but its own events.
//!
//! `hai-client` 0.0.5 is of the age of `@ag-ui/client` 0.0.36, which refuses everything else ("Send 'TEXT_MESSAGE_END'
//! first"). Events of others wait until the open item ends. Activities, sources and files do not wait for a text: they are
//! written into its message. Collaborations are ended for clients before the next event, because an agent may never end
//! them.

use std::collections::VecDeque;

use super::super::wire::{HAI, SOURCE};
use crate::{
    event::{Body, Event, MessageId, ToolCallId},
    json::Json,
};

/// The most waiting events. Beyond it the order is given up rather than the memory.
const MAX_WAITING: usize = 4096;

/// The open item, and the events that wait for its end.
#[derive(Debug, Default)]
pub(crate) struct Serial {
    open: Option<OpenItem>,
    waiting: VecDeque<Event>,
}

#[derive(Debug)]
enum OpenItem {
    /// A message with its open texts and thoughts.
    Message {
        wire: MessageId,
        users: Vec<(MessageId, UserKind)>,
    },
    Call(ToolCallId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UserKind {
    Text,
    Thought,
}

impl Serial {
    /// True if the event can be written now; `is_shown` tells whether an activity is displayed. Otherwise it waits.
    pub(crate) fn admit(&mut self, event: &Event, is_shown: impl Fn(&MessageId) -> bool) -> bool {
        if self.can_write(event, is_shown) {
            self.note(event);
            return true;
        }
        self.waiting.push_back(event.clone());
        false
    }

    /// The next waiting event that can be written.
    pub(crate) fn next(&mut self, is_shown: impl Fn(&MessageId) -> bool) -> Option<Event> {
        let at = match self.waiting.len() > MAX_WAITING {
            true => 0,
            false => self.waiting.iter().position(|event| self.can_write(event, &is_shown))?,
        };
        let event = self.waiting.remove(at)?;
        self.note(&event);
        Some(event)
    }

    /// All waiting events, before the run or the stream ends.
    pub(crate) fn take_all(&mut self) -> VecDeque<Event> {
        self.open = None;
        std::mem::take(&mut self.waiting)
    }

    fn can_write(&self, event: &Event, is_shown: impl Fn(&MessageId) -> bool) -> bool {
        match (&self.open, &event.body) {
            (None, _) => true,
            // Its own unknown events are written as they are, all others as RAW, which old clients accept anywhere.
            (_, Body::Raw { source, .. }) => source.as_deref() != Some(SOURCE),
            (Some(OpenItem::Call(open)), Body::ToolArgs { call, .. } | Body::ToolEnd { call }) => {
                open == call
            }
            (Some(OpenItem::Message { wire, users }), body) => {
                let has = |wanted: UserKind| users.iter().any(|(_, kind)| *kind == wanted);
                let is_own = |id: &MessageId| users.iter().any(|(user, _)| user == id);
                let is_inside = || named_message(event).as_ref() == Some(wire);
                match body {
                    Body::TextDelta { message, .. } | Body::TextEnd { message } => is_own(message),
                    Body::ReasoningDelta { message, .. } | Body::ReasoningMessageEnd { message } => {
                        is_own(message)
                    }
                    Body::TextStart { .. } | Body::ReasoningMessageStart { .. } => is_inside(),
                    Body::ReasoningStart { title: None, .. } => is_inside(),
                    Body::Block(block) => block.message == *wire,
                    Body::ActivitySnapshot { .. } | Body::Citation(_) | Body::File(_) => has(UserKind::Text),
                    Body::ActivityDelta { message, .. } => {
                        is_inside() || (has(UserKind::Text) && is_shown(message))
                    }
                    _ => false,
                }
            }
            _ => false,
        }
    }

    fn note(&mut self, event: &Event) {
        let started = match &event.body {
            Body::TextStart { message, .. } => Some((message, UserKind::Text)),
            Body::ReasoningMessageStart { message } => Some((message, UserKind::Thought)),
            _ => None,
        };
        match (&mut self.open, &event.body) {
            (Some(OpenItem::Message { users, .. }), _) if started.is_some() => {
                users.extend(started.map(|(message, kind)| (message.clone(), kind)));
            }
            (Some(OpenItem::Message { users, .. }), body) => {
                let ended = match body {
                    Body::TextEnd { message } => Some((message, UserKind::Text)),
                    Body::ReasoningMessageEnd { message } => Some((message, UserKind::Thought)),
                    _ => None,
                };
                users.retain(|(user, kind)| ended != Some((user, *kind)));
                if users.is_empty() {
                    self.open = None;
                }
            }
            (Some(OpenItem::Call(open)), Body::ToolEnd { call }) if open == call => self.open = None,
            (None, body) => {
                self.open = match (started, body) {
                    (Some((message, kind)), _) => {
                        let wire = named_message(event).unwrap_or_else(|| message.clone());
                        Some(OpenItem::Message { wire, users: vec![(message.clone(), kind)] })
                    }
                    (None, Body::ToolStart { call, .. }) => Some(OpenItem::Call(call.clone())),
                    _ => None,
                };
            }
            _ => {}
        }
    }
}

/// The HAI message that an event names in its metadata.
fn named_message(event: &Event) -> Option<MessageId> {
    event.metadata()?.member(HAI).and_then(Json::into_object)?.get_str("messageId").map(MessageId::from)
}
