//! Calls of tools: pieces that may lack an id, a name, a place, until the whole message says which call they were.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    super::{
        super::{raw_json, wire},
        Cx, call_ids,
        messages::{self, WholeCall, call_id},
        tool_calls,
    },
    Lane,
};
use crate::event::{Body, EncryptedEntity, ToolCallId};

/// How many calls one answer may have open; models make a handful.
const MAX_CALLS: usize = 512;

#[derive(Debug)]
pub(super) struct CallLane {
    pub(super) index: Option<Box<str>>,
    /// Whether the source gave the id.
    pub(super) id: ToolCallId,
    native: bool,
    /// Not shown while its name is unknown; arguments wait here.
    waiting: Option<String>,
    sent: usize,
    signed: bool,
}

impl CallLane {
    /// Whether the source calls it `native`.
    fn is(&self, native: &str) -> bool {
        call_ids::number(native, &self.id).is_some()
    }
}

impl Lane {
    /// A piece of a call: `{id?, name?, args, index}`.
    pub(super) fn call_piece(&mut self, call: &wire::Call<'_>, cx: &mut Cx<'_>) {
        let id = raw_json::filled(call.id, cx.tally);
        let name = raw_json::filled(call.name, cx.tally);
        let args = messages::arguments(call.args, cx.tally);
        let index: Option<Box<str>> = call.index.map(|raw| raw.get().into());
        let same_index = |lane: &CallLane| index.is_some() && lane.index == index;
        let at = match &id {
            // The same id again is the same call going on, unless it stands at another place.
            Some(id) => self.calls.iter().rposition(|lane| {
                (lane.is(id) || !lane.native && same_index(lane)) && (index.is_none() || lane.index == index)
            }),
            None if index.is_some() => self.calls.iter().rposition(same_index),
            None if name.is_some() => None,
            None => self.calls.len().checked_sub(1),
        };
        let at = match at {
            Some(at) => at,
            None => {
                if id.is_none() && name.is_none() {
                    if !args.is_empty() {
                        cx.tally.note("tool arguments without a call", "tool_call_chunks");
                    }
                    return;
                }
                if self.calls.len() >= MAX_CALLS {
                    return cx.tally.note("too many tool calls", self.native.as_deref().unwrap_or_default());
                }
                let message = self.message(cx);
                let native = id.is_some();
                let id = match &id {
                    Some(id) => cx.client.announced(id, &message, self.native.as_deref(), &self.scope, false),
                    None => call_id(&message, self.calls.len()),
                };
                let waiting = Some(String::new());
                self.calls.push(CallLane { index, id, native, waiting, sent: 0, signed: false });
                self.calls.len() - 1
            }
        };
        if let Some(id) = &id {
            let lane = &self.calls[at];
            cx.client.alias_call(id, &lane.id, &self.scope);
        }
        if let Some(name) = &name {
            self.show_call(at, Some(name), cx);
        }
        let lane = &mut self.calls[at];
        match &mut lane.waiting {
            Some(waiting) => waiting.push_str(&args),
            None => {
                lane.sent += args.len();
                let id = lane.id.clone();
                tool_calls::args(cx, &id, &args);
            }
        }
    }

    /// Shows a call, if it is not shown yet.
    pub(super) fn show_call(&mut self, at: usize, name: Option<&Cow<'_, str>>, cx: &mut Cx<'_>) {
        let Some(waiting) = self.calls[at].waiting.take() else { return };
        let message = self.message(cx);
        self.close_thought(cx);
        let id = self.calls[at].id.clone();
        tool_calls::start(
            cx,
            &id,
            name.map(|name| &**name).unwrap_or_default(),
            Some(&message),
            self.owner.as_ref(),
            self.hidden,
        );
        self.calls[at].sent += waiting.len();
        tool_calls::args(cx, &id, &waiting);
    }

    /// A call of the whole message.
    pub(super) fn whole_call(&mut self, index: usize, call: &WholeCall<'_>, cx: &mut Cx<'_>) {
        let known = match &call.id {
            Some(id) => self.calls.iter().position(|lane| lane.is(id)),
            None => None,
        };
        // A call that was streamed without an id is the one at its place.
        let known = known.or_else(|| {
            let lane = self.calls.get(index)?;
            (!lane.native).then_some(index)
        });
        if let Some(at) = known {
            if let Some(id) = &call.id {
                cx.client.alias_call(id, &self.calls[at].id, &self.scope);
            }
            self.show_call(at, Some(&call.name), cx);
            let lane = &mut self.calls[at];
            if lane.sent == 0 && !matches!(&*call.args, "" | "{}") {
                lane.sent += call.args.len();
                tool_calls::args(cx, &lane.id.clone(), &call.args);
            } else {
                tool_calls::compare(cx, &lane.id.clone(), &call.args);
            }
            return;
        }
        let message = self.message(cx);
        let id = match &call.id {
            Some(id) => cx.client.announced(id, &message, self.native.as_deref(), &self.scope, true),
            None => call_id(&message, index),
        };
        if self.calls.len() >= MAX_CALLS {
            return cx.tally.note("too many tool calls", &message);
        }
        if let Some(native) = &call.id {
            cx.client.alias_call(native, &id, &self.scope);
        }
        if cx.client.holds_elsewhere(&id, &message) {
            return;
        }
        self.close_thought(cx);
        tool_calls::start(cx, &id, &call.name, Some(&message), self.owner.as_ref(), self.hidden);
        tool_calls::args(cx, &id, &call.args);
        let (sent, native) = (call.args.len(), call.id.is_some());
        self.calls.push(CallLane { index: None, id, native, waiting: None, sent, signed: false });
    }

    /// What only the provider can read about calls: `{CALL: TEXT}`.
    pub(super) fn seal_calls(&mut self, signatures: &RawValue, cx: &mut Cx<'_>) {
        if cx.settings.manual_reasoning {
            return;
        }
        for (call, value) in raw_json::members(signatures).unwrap_or_default() {
            let Some(lane) = self.calls.iter_mut().find(|lane| lane.is(&call)) else { continue };
            if let Some(value) = raw_json::filled(Some(value), cx.tally)
                && !std::mem::replace(&mut lane.signed, true)
            {
                let entity = EncryptedEntity::ToolCall(lane.id.clone());
                self.emit(cx, Body::ReasoningEncrypted { entity, value: value.into() });
            }
        }
    }
}
