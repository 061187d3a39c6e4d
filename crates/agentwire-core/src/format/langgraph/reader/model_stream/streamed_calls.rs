//! Tool calls of a model run. Chunks may lack an id, a name or an index until the complete message identifies
//! their call.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::ModelStream;
use crate::{
    event::{Body, EncryptedEntity, ToolCallId},
    format::langgraph::{
        raw_json,
        reader::{
            ReaderContext, call_ids,
            messages::{self, CompleteCall, default_call_id},
            tool_calls,
        },
        wire::NativeCall,
    },
};

/// Bound on the tool calls of one message; models make a handful.
const MAX_CALLS: usize = 512;

/// A tool call of the message that streams.
#[derive(Debug)]
pub(super) struct StreamedCall {
    pub(super) index: Option<Box<str>>,
    /// The id that the client sees.
    pub(super) id: ToolCallId,
    has_native_id: bool,
    /// Arguments that wait for the name of the tool; the call is not shown before.
    buffered_args: Option<String>,
    sent_bytes: usize,
    is_signed: bool,
}

impl StreamedCall {
    /// Whether the source uses the id `native` for this call.
    fn has_id(&self, native: &str) -> bool {
        call_ids::number(native, &self.id).is_some()
    }
}

impl ModelStream {
    /// Reads a chunk of a call: `{id?, name?, args, index}`.
    pub(super) fn read_call_chunk(&mut self, chunk: &NativeCall<'_>, cx: &mut ReaderContext<'_>) {
        let id = raw_json::non_empty(chunk.id, cx.tally);
        let name = raw_json::non_empty(chunk.name, cx.tally);
        let args = messages::arguments_text(chunk.args, cx.tally);
        let index: Option<Box<str>> = chunk.index.map(|raw| raw.get().into());
        let has_same_index = |call: &StreamedCall| index.is_some() && call.index == index;
        let at = match &id {
            // A repeated id continues the same call, unless it has another index.
            Some(id) => self.calls.iter().rposition(|call| {
                (call.has_id(id) || !call.has_native_id && has_same_index(call))
                    && (index.is_none() || call.index == index)
            }),
            None if index.is_some() => self.calls.iter().rposition(has_same_index),
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
                    return cx.tally.note("too many tool calls", self.native_id().unwrap_or_default());
                }
                let has_native_id = id.is_some();
                let id = self.shown_call_id(id.as_deref(), self.calls.len(), false, cx);
                self.calls.push(StreamedCall {
                    index,
                    id,
                    has_native_id,
                    buffered_args: Some(String::new()),
                    sent_bytes: 0,
                    is_signed: false,
                });
                self.calls.len() - 1
            }
        };
        if let Some(id) = &id {
            cx.shown.alias_call(id, &self.calls[at].id, &self.identity.scope);
        }
        if let Some(name) = &name {
            self.show_call(at, Some(name), cx);
        }
        let call = &mut self.calls[at];
        match &mut call.buffered_args {
            Some(buffered) => buffered.push_str(&args),
            None => {
                call.sent_bytes += args.len();
                let id = call.id.clone();
                tool_calls::send_args(cx, &id, &args);
            }
        }
    }

    /// The id under which to show a call of this message.
    fn shown_call_id(
        &mut self,
        native: Option<&str>,
        index: usize,
        is_complete: bool,
        cx: &mut ReaderContext<'_>,
    ) -> ToolCallId {
        let message = self.message_id(cx);
        match native {
            Some(id) => {
                let scope = &self.identity.scope;
                cx.shown.id_for_new_call(id, &message, self.native_id(), scope, is_complete)
            }
            None => default_call_id(&message, index),
        }
    }

    /// Shows a call, if it is not shown yet.
    pub(super) fn show_call(&mut self, at: usize, name: Option<&Cow<'_, str>>, cx: &mut ReaderContext<'_>) {
        let Some(buffered) = self.calls[at].buffered_args.take() else { return };
        let id = self.calls[at].id.clone();
        self.start_call(&id, name.map(|name| &**name).unwrap_or_default(), cx);
        self.calls[at].sent_bytes += buffered.len();
        tool_calls::send_args(cx, &id, &buffered);
    }

    fn start_call(&mut self, id: &ToolCallId, name: &str, cx: &mut ReaderContext<'_>) {
        let message = self.message_id(cx);
        self.close_reasoning(cx);
        let rules = self.identity.rules.as_deref();
        if let Some(value) = rules.and_then(|rules| rules.prediction(name)).cloned() {
            self.emit(cx, Body::Custom { name: "PredictState".into(), value });
        }
        let is_hidden = self.identity.is_hidden || rules.is_some_and(|rules| rules.hides_call(name));
        tool_calls::start_call(cx, id, name, Some(&message), self.identity.owner.as_ref(), is_hidden);
    }

    /// Reads a call of the complete message.
    pub(super) fn read_complete_call(
        &mut self,
        index: usize,
        call: &CompleteCall<'_>,
        cx: &mut ReaderContext<'_>,
    ) {
        let streamed = match &call.id {
            Some(id) => self.calls.iter().position(|streamed| streamed.has_id(id)),
            None => None,
        };
        // A call that was streamed without an id is identified by its index.
        let streamed = streamed.or_else(|| {
            let streamed = self.calls.get(index)?;
            (!streamed.has_native_id).then_some(index)
        });
        if let Some(at) = streamed {
            if let Some(id) = &call.id {
                cx.shown.alias_call(id, &self.calls[at].id, &self.identity.scope);
            }
            self.show_call(at, Some(&call.name), cx);
            let streamed = &mut self.calls[at];
            if streamed.sent_bytes == 0 && !matches!(&*call.args, "" | "{}") {
                streamed.sent_bytes += call.args.len();
                tool_calls::send_args(cx, &streamed.id.clone(), &call.args);
            } else {
                tool_calls::compare_args(cx, &streamed.id.clone(), &call.args);
            }
            return;
        }
        let message = self.message_id(cx);
        let id = self.shown_call_id(call.id.as_deref(), index, true, cx);
        if self.calls.len() >= MAX_CALLS {
            return cx.tally.note("too many tool calls", &message);
        }
        if let Some(native) = &call.id {
            cx.shown.alias_call(native, &id, &self.identity.scope);
        }
        if cx.shown.is_held_by_another(&id, &message) {
            return;
        }
        self.start_call(&id, &call.name, cx);
        tool_calls::send_args(cx, &id, &call.args);
        self.calls.push(StreamedCall {
            index: None,
            id,
            has_native_id: call.id.is_some(),
            buffered_args: None,
            sent_bytes: call.args.len(),
            is_signed: false,
        });
    }

    /// Emits the provider's signatures of calls: `{CALL: SIGNATURE}`.
    pub(super) fn send_call_signatures(&mut self, signatures: &RawValue, cx: &mut ReaderContext<'_>) {
        if cx.options.manual_reasoning {
            return;
        }
        for (native, value) in raw_json::members(signatures).unwrap_or_default() {
            let Some(call) = self.calls.iter_mut().find(|call| call.has_id(&native)) else { continue };
            if let Some(value) = raw_json::non_empty(Some(value), cx.tally)
                && !std::mem::replace(&mut call.is_signed, true)
            {
                let entity = EncryptedEntity::ToolCall(call.id.clone());
                self.emit(cx, Body::ReasoningEncrypted { entity, value: value.into() });
            }
        }
    }
}
