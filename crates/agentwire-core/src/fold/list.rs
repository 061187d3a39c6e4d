//! The messages of a conversation while they stream.
//!
//! A [`Message`] holds finished text, which is compact but slow to append to. So streaming text lives in a buffer beside
//! its message and moves into it when the messages are read or the text ends; a delta costs its own length, regardless of
//! the length of the message and the conversation.
//!
//! A tool result follows its call, in the middle of the list. Messages are therefore linked: they are stored in order of
//! creation, `next` holds the order of the conversation, and reading the whole list sorts the storage.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    mem,
};

use serde_json::Value;

use crate::{
    event::{Content, Message, MessageBody, MessageId, Role, ToolCall, ToolCallId},
    json::{Footprint, Object},
    patch::{self, Growth, Limits, Patch, PatchError},
};

/// The index of a message. Valid until messages are reordered or dropped.
pub(super) type Slot = usize;

/// The position of a tool call: its message, and its index among the calls of that message.
pub(super) type CallSlot = (Slot, usize);

/// The end of the list.
const END: Slot = Slot::MAX;

/// Messages in order, found by id. Of several with one id, the first in order counts.
#[derive(Clone, Debug)]
pub(super) struct List {
    messages: Vec<Message>,
    next: Vec<Slot>,
    last: Slot,
    /// Whether the storage is in the order of the conversation.
    in_order: bool,
    by_id: HashMap<MessageId, Slot>,
    by_call: HashMap<ToolCallId, CallSlot>,
    /// Streaming text, by message.
    texts: HashMap<Slot, String>,
    /// Streaming arguments, by call.
    arguments: HashMap<CallSlot, String>,
    /// The content of activities that are being patched; that of the message is stale.
    contents: HashMap<Slot, ParsedContent>,
    /// The memory of `contents`, as [`Footprint`] estimates it.
    parsed_footprint: usize,
    /// Whether the list has ever contained a reasoning message.
    has_reasoned: bool,
    /// Messages before this one have kept their positions, so that every earlier copy of the list starts with the same
    /// messages.
    settled_order: usize,
}

/// The content of an activity that is being patched.
#[derive(Clone, Debug)]
struct ParsedContent {
    value: Value,
    footprint: usize,
}

impl ParsedContent {
    fn new(value: Value) -> Self {
        let footprint = Footprint::of(&value);
        Self { value, footprint }
    }
}

impl List {
    pub(super) fn new(messages: Vec<Message>) -> Self {
        let mut list = Self {
            messages,
            next: Vec::new(),
            last: END,
            in_order: true,
            by_id: HashMap::new(),
            by_call: HashMap::new(),
            texts: HashMap::new(),
            arguments: HashMap::new(),
            contents: HashMap::new(),
            parsed_footprint: 0,
            has_reasoned: false,
            settled_order: usize::MAX,
        };
        list.index();
        list
    }

    /// The first message of that id.
    pub(super) fn find(&self, id: &str) -> Option<Slot> {
        self.by_id.get(id).copied()
    }

    /// The first call of that id.
    pub(super) fn find_call(&self, id: &str) -> Option<CallSlot> {
        self.by_call.get(id).copied()
    }

    /// A message, whose text, arguments and activity content may be stale.
    pub(super) fn get(&self, slot: Slot) -> &Message {
        &self.messages[slot]
    }

    /// Mutable access to a message, but for its id, text, calls and activity content.
    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut Message {
        &mut self.messages[slot]
    }

    /// Mutable access to a call, but for its id and arguments.
    pub(super) fn call_mut(&mut self, (slot, index): CallSlot) -> &mut ToolCall {
        let calls = calls_mut(&mut self.messages[slot]).expect("the index names assistant messages only");
        &mut calls.get_or_insert_default()[index]
    }

    /// Appends a message.
    pub(super) fn push(&mut self, message: Message) -> Slot {
        let slot = self.lay_down(message);
        if let Some(next) = self.next.get_mut(self.last) {
            *next = slot;
        }
        self.last = slot;
        let message = &self.messages[slot];
        self.by_id.entry(message.id.clone()).or_insert(slot);
        for (index, call) in message.tool_calls().iter().enumerate() {
            self.by_call.entry(call.id.clone()).or_insert((slot, index));
        }
        slot
    }

    /// Inserts a tool result after the message with its call and the results that follow it.
    pub(super) fn insert_tool_result(&mut self, holder: Slot, answer: Message) {
        let mut before = holder;
        while let Some(message) = self.messages.get(self.next[before])
            && message.role() == Role::Tool
        {
            before = self.next[before];
        }
        if before == self.last {
            self.push(answer);
            return;
        }
        let slot = self.lay_down(answer);
        self.next[slot] = mem::replace(&mut self.next[before], slot);
        self.in_order = false;
        match self.by_id.entry(self.messages[slot].id.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(slot);
            }
            Entry::Occupied(mut entry) => {
                let mut later = self.next[slot];
                while later != END && later != *entry.get() {
                    later = self.next[later];
                }
                if later != END {
                    entry.insert(slot);
                }
            }
        }
    }

    fn lay_down(&mut self, message: Message) -> Slot {
        self.has_reasoned |= message.role() == Role::Reasoning;
        self.messages.push(message);
        self.next.push(END);
        self.messages.len() - 1
    }

    /// Replaces a message by another one of the same id. Invalidates earlier slots.
    pub(super) fn replace(&mut self, slot: Slot, message: Message) {
        debug_assert_eq!(message.id, self.messages[slot].id);
        self.texts.remove(&slot);
        if let Some(parsed) = self.contents.remove(&slot) {
            self.parsed_footprint -= parsed.footprint;
        }
        let old = mem::replace(&mut self.messages[slot], message);
        if !old.tool_calls().is_empty() || !self.messages[slot].tool_calls().is_empty() {
            // Another message may contain the same call, and is then the first to do so.
            self.arguments.retain(|(message, _), _| *message != slot);
            self.settle_buffers();
            self.arrange();
            self.index();
        }
    }

    /// Appends to the text of a message. Other content is replaced by the text; an activity is unchanged.
    pub(super) fn append_text(&mut self, slot: Slot, delta: &str) {
        if let Some(text) = self.texts.get_mut(&slot) {
            text.push_str(delta);
            return;
        }
        let text = match &mut self.messages[slot].body {
            MessageBody::Developer { content }
            | MessageBody::System { content }
            | MessageBody::Reasoning { content } => mem::take(content),
            MessageBody::Assistant { content, .. } => content.take().unwrap_or_default(),
            MessageBody::User { content } | MessageBody::Tool { content, .. } => {
                match mem::replace(content, Content::Text(Box::default())) {
                    Content::Text(text) => text,
                    Content::Parts(_) => Box::default(),
                }
            }
            MessageBody::Activity { .. } => return,
        };
        let mut text = String::from(text);
        text.push_str(delta);
        self.texts.insert(slot, text);
    }

    /// Moves the text of a message from its buffer into the message.
    pub(super) fn settle_text(&mut self, slot: Slot) {
        if let Some(text) = self.texts.remove(&slot) {
            put_text(&mut self.messages[slot], text);
        }
    }

    /// Adds a call to an assistant message; `None` for any other.
    pub(super) fn add_call(&mut self, slot: Slot, call: ToolCall) -> Option<CallSlot> {
        let calls = calls_mut(&mut self.messages[slot])?.get_or_insert_default();
        let place = (slot, calls.len());
        self.by_call.entry(call.id.clone()).or_insert(place);
        calls.push(call);
        Some(place)
    }

    /// Appends to the arguments of a call.
    pub(super) fn append_arguments(&mut self, place: CallSlot, delta: &str) {
        if let Some(arguments) = self.arguments.get_mut(&place) {
            arguments.push_str(delta);
            return;
        }
        let mut arguments = String::from(mem::take(&mut self.call_mut(place).arguments));
        arguments.push_str(delta);
        self.arguments.insert(place, arguments);
    }

    /// Moves the arguments of a call from their buffer into the call.
    pub(super) fn settle_arguments(&mut self, place: CallSlot) {
        if let Some(arguments) = self.arguments.remove(&place) {
            self.call_mut(place).arguments = arguments.into();
        }
    }

    /// Patches the content of an activity, all or nothing; returns its growth if it applied, or the error of the patch.
    ///
    /// A patch that turns the content into another type than an object does not apply: the official client would accept
    /// it and then hold a message that its own schema refuses.
    pub(super) fn patch_content(
        &mut self,
        slot: Slot,
        patch: &Patch,
        limits: &Limits,
    ) -> Result<Option<Growth>, PatchError> {
        if self.parsed_footprint > Footprint::MAX / 2 {
            // The other activities are kept as text again, which takes far less memory.
            let others: Vec<Slot> = self.contents.keys().copied().filter(|other| *other != slot).collect();
            for other in others {
                self.settle_content(other);
            }
        }
        let MessageBody::Activity { content, .. } = &self.messages[slot].body else {
            return Ok(None);
        };
        let parsed = match self.contents.entry(slot) {
            Entry::Occupied(parsed) => parsed.into_mut(),
            Entry::Vacant(place) => {
                let parsed = ParsedContent::new(content.to_value());
                self.parsed_footprint += parsed.footprint;
                place.insert(parsed)
            }
        };
        // The other activities do not count: the same patch applies wherever the log is read again.
        let room = Footprint::MAX.saturating_sub(parsed.footprint);
        let limits = Limits { max_footprint_growth: limits.max_footprint_growth.min(room), ..*limits };
        let growth = patch::apply_if(&mut parsed.value, patch, &limits, Value::is_object)?;
        self.parsed_footprint -= parsed.footprint;
        let by = growth.unwrap_or_default().footprint;
        parsed.footprint = parsed.footprint.saturating_add_signed(isize::try_from(by).unwrap_or(isize::MAX));
        self.parsed_footprint += parsed.footprint;
        Ok(growth)
    }

    /// Moves the patched content of an activity into its message.
    fn settle_content(&mut self, slot: Slot) {
        let Some(parsed) = self.contents.remove(&slot) else { return };
        self.parsed_footprint -= parsed.footprint;
        if let MessageBody::Activity { content, .. } = &mut self.messages[slot].body {
            *content = Object::from_value(&parsed.value).expect("only objects are kept");
        }
    }

    /// All messages in order, up to date.
    pub(super) fn settle(&mut self) -> &mut Vec<Message> {
        self.settle_buffers();
        if !self.in_order {
            self.arrange();
            self.index();
        }
        &mut self.messages
    }

    fn settle_buffers(&mut self) {
        for (slot, text) in self.texts.drain() {
            put_text(&mut self.messages[slot], text);
        }
        for (place, arguments) in mem::take(&mut self.arguments) {
            self.call_mut(place).arguments = arguments.into();
        }
        self.parsed_footprint = 0;
        for (slot, parsed) in self.contents.drain() {
            if let MessageBody::Activity { content, .. } = &mut self.messages[slot].body {
                *content = Object::from_value(&parsed.value).expect("only objects are kept");
            }
        }
    }

    /// Keeps, replaces or drops each message, then appends.
    pub(super) fn rebuild(
        &mut self,
        mut keep: impl FnMut(Message) -> Option<Message>,
        append: impl FnOnce(&HashSet<MessageId>) -> Vec<Message>,
    ) {
        let old = mem::take(self.settle());
        let mut kept = Vec::with_capacity(old.len());
        for (position, message) in old.into_iter().enumerate() {
            match keep(message) {
                Some(message) => kept.push(message),
                None => self.settled_order = self.settled_order.min(position),
            }
        }
        let ids = kept.iter().map(|message| message.id.clone()).collect();
        kept.extend(append(&ids));
        self.messages = kept;
        self.index();
    }

    /// Whether any copy of this list can contain a reasoning message.
    pub(super) fn has_reasoned(&self) -> bool {
        self.has_reasoned
    }

    /// The number of leading messages that every earlier copy of this list starts with, as far as the copy reaches.
    pub(super) fn settled_order(&mut self) -> usize {
        self.settle();
        let mut seen: HashMap<&str, usize> = HashMap::with_capacity(self.messages.len());
        let mut settled = self.settled_order.min(self.messages.len());
        for (position, message) in self.messages.iter().enumerate() {
            // A copy cannot distinguish two messages of one id.
            let first = *seen.entry(&message.id).or_insert(position);
            if first != position {
                settled = settled.min(first);
            }
        }
        settled
    }

    /// Sorts the storage into the order of the conversation. Slots change, so buffers must be flushed and the index
    /// rebuilt.
    fn arrange(&mut self) {
        let mut lying: Vec<_> = mem::take(&mut self.messages).into_iter().map(Some).collect();
        let mut slot = if lying.is_empty() { END } else { 0 };
        while slot != END {
            let position = self.messages.len();
            if slot != position {
                self.settled_order = self.settled_order.min(position);
            }
            self.messages.push(lying[slot].take().expect("each message stands in one place"));
            slot = self.next[slot];
        }
    }

    /// Rebuilds links and index for sorted storage.
    fn index(&mut self) {
        self.by_id.clear();
        self.by_call.clear();
        self.next.clear();
        self.by_id.reserve(self.messages.len());
        self.next.reserve(self.messages.len());
        for (slot, message) in self.messages.iter().enumerate() {
            self.next.push(slot + 1);
            self.has_reasoned |= message.role() == Role::Reasoning;
            self.by_id.entry(message.id.clone()).or_insert(slot);
            for (index, call) in message.tool_calls().iter().enumerate() {
                self.by_call.entry(call.id.clone()).or_insert((slot, index));
            }
        }
        self.last = END;
        if let Some(next) = self.next.last_mut() {
            *next = END;
            self.last = self.messages.len() - 1;
        }
        self.in_order = true;
    }
}

fn calls_mut(message: &mut Message) -> Option<&mut Option<Vec<ToolCall>>> {
    match &mut message.body {
        MessageBody::Assistant { tool_calls, .. } => Some(tool_calls),
        _ => None,
    }
}

fn put_text(message: &mut Message, text: String) {
    match &mut message.body {
        MessageBody::Developer { content }
        | MessageBody::System { content }
        | MessageBody::Reasoning { content } => *content = text.into(),
        MessageBody::Assistant { content, .. } => *content = Some(text.into()),
        MessageBody::User { content } | MessageBody::Tool { content, .. } => *content = text.into(),
        MessageBody::Activity { .. } => {}
    }
}
