//! Protocol v2 of the server: `{"type":"event","method":…,"params":{…}}`.
//!
//! It is close to the canonical events, but blocks do not contain the id of their message: they belong to the
//! latest message that started in their namespace.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    super::{
        namespace::{node_of, outer},
        raw_json,
        wire::{NativeFrame, ProtocolData, ProtocolMethod, ProtocolParams, ResponseMetadata, StreamMode},
    },
    LangGraphReader,
    content_blocks::{self, ContentPiece},
    cx,
    interrupts::new_interrupt,
    messages::{self, ShownIds},
    model_stream::ModelStream,
    node_runs::NodeRun,
    run::OpenToolMessage,
    tool_calls::{self, NewToolResult},
};
use crate::event::Event;

/// Bound on the blocks that wait for the end of a mixed message; messages have a handful.
const MAX_BLOCKS: usize = 4096;

impl LangGraphReader {
    /// Reads the response to a command, which contains the id of the run it started.
    pub(super) fn read_protocol_response(&mut self, result: &RawValue) {
        let data = ProtocolData::of(result).unwrap_or_default();
        if let Some(run) = raw_json::non_empty(data.run_id, &mut self.tally) {
            if self.run.is_over() {
                self.next_run();
            }
            self.run.native_id = Some(run.into());
        }
    }

    pub(super) fn read_protocol(&mut self, native: &NativeFrame<'_>, frame: &str, out: &mut Vec<Event>) {
        let before = out.len();
        let params = native.params.and_then(ProtocolParams::of).unwrap_or_default();
        self.read_protocol_event(native, &params, frame, out);
        if let Some(timestamp) = raw_json::integer(params.timestamp) {
            for event in &mut out[before..] {
                event.timestamp = Some(timestamp);
            }
        }
    }

    fn read_protocol_event(
        &mut self,
        native: &NativeFrame<'_>,
        params: &ProtocolParams<'_>,
        frame: &str,
        out: &mut Vec<Event>,
    ) {
        let method =
            native.method.and_then(|method| raw_json::string(method, &mut self.tally)).unwrap_or_default();
        let ns = raw_json::strings(params.namespace, &mut self.tally).join("|");
        let Some(raw) = params.data else {
            return self.tally.note("wrong type", &format!("{method} data"));
        };
        let Some(name) = ProtocolMethod::parse(&method) else {
            self.start_if_idle(out);
            return self.tally.note("unknown method", &method);
        };
        let data = ProtocolData::of(raw).unwrap_or_default();
        if name == ProtocolMethod::Lifecycle {
            return self.read_lifecycle(native, &ns, &data, out);
        }
        if self.run.is_over() {
            return self.tally.note("event after the end", &method);
        }
        self.start_if_idle(out);
        self.run.input.is_graph = true;
        match name {
            ProtocolMethod::Messages => self.read_protocol_message(&ns, &data, out),
            ProtocolMethod::Tools => self.read_protocol_tool(&ns, &data, out),
            ProtocolMethod::InputRequested => {
                let id = raw_json::non_empty(data.interrupt_id, &mut self.tally);
                let id = id.unwrap_or(Cow::Borrowed("interrupt-1")).as_ref().into();
                let interrupt = new_interrupt(id, data.payload, None, &ns, &mut self.tally);
                self.add_interrupt(interrupt);
            }
            ProtocolMethod::Updates => match raw_json::non_empty(data.node, &mut self.tally) {
                Some(node) => {
                    if let Some(values) = data.values {
                        self.read_update(&ns, &node, values, out);
                    }
                }
                None => self.read_updates(&ns, raw, out),
            },
            ProtocolMethod::Custom => match raw_json::non_empty(data.name, &mut self.tally) {
                Some(name) => self.read_custom(&name, data.payload, "", out),
                None => self.read_writer_output(data.payload.unwrap_or(raw), out),
            },
            ProtocolMethod::Values => self.read_mode(StreamMode::Values, &ns, raw, frame, out),
            ProtocolMethod::Tasks => self.read_mode(StreamMode::Tasks, &ns, raw, frame, out),
            ProtocolMethod::Debug => self.read_mode(StreamMode::Debug, &ns, raw, frame, out),
            ProtocolMethod::Checkpoints => self.read_mode(StreamMode::Checkpoints, &ns, raw, frame, out),
            ProtocolMethod::Lifecycle => {}
        }
        // This protocol reports the end of a run, so a closed stream without one is truncated.
        self.run.input.has_modes = false;
    }

    fn read_lifecycle(
        &mut self,
        native: &NativeFrame<'_>,
        ns: &str,
        data: &ProtocolData<'_>,
        out: &mut Vec<Event>,
    ) {
        let event = raw_json::non_empty(data.event, &mut self.tally).unwrap_or_default();
        let is_start = matches!(&*event, "running" | "started");
        if !ns.is_empty() {
            if self.run.is_active() {
                self.read_nested_lifecycle(ns, is_start, data, out);
            }
            return;
        }
        if is_start {
            if self.run.is_active() {
                return;
            }
            if self.run.is_over() {
                self.next_run();
            }
            // `synth:RUN:lc||running`
            let id = raw_json::non_empty(native.event_id, &mut self.tally).unwrap_or_default();
            let run = id.strip_prefix("synth:").and_then(|rest| rest.split(':').next());
            self.run.input.is_graph = true;
            return self.start_run(None, run, out);
        }
        if self.run.is_over() {
            return self.tally.note("event after the end", &event);
        }
        match &*event {
            "completed" | "interrupted" => self.finish_run(out),
            "failed" => self.run_failed(data.error, out),
            other => self.tally.note("unknown lifecycle event", other),
        }
    }

    /// Reads the start or end of a nested graph, which runs inside the node of the last segment.
    fn read_nested_lifecycle(
        &mut self,
        ns: &str,
        is_start: bool,
        data: &ProtocolData<'_>,
        out: &mut Vec<Event>,
    ) {
        if self.run.input.has_tasks {
            return;
        }
        if is_start && !self.nodes.is_running(ns) {
            let segment = ns.rsplit('|').next().unwrap_or(ns);
            let mut node = NodeRun::new(node_of(segment), ns);
            node.is_hidden = self.options.hides_node(ns, "");
            let cause = data.cause.and_then(ProtocolData::of).unwrap_or_default();
            if let Some(call) = raw_json::non_empty(cause.tool_call_id, &mut self.tally) {
                node.assigned_calls.push(self.shown.call_in_scope(&call, outer(ns)));
            }
            self.nodes.start(cx!(self, out), ns, node);
        } else if !is_start {
            self.finish_streams_at(ns, out);
            if data.event.is_some_and(|event| event.get() == "\"failed\"") {
                self.nodes.fail(cx!(self, out), ns);
            } else {
                self.nodes.finish(cx!(self, out), ns);
            }
        }
    }

    fn read_protocol_message(&mut self, ns: &str, data: &ProtocolData<'_>, out: &mut Vec<Event>) {
        let event = raw_json::non_empty(data.event, &mut self.tally).unwrap_or_default();
        if event == "message-start" {
            return self.start_protocol_message(ns, data, out);
        }
        let Some((key, _)) = self.streams.iter().rev().find(|(_, stream)| *stream.identity.ns == *ns) else {
            // A tool result in the form of a message; its last block contains the text.
            return self.read_tool_message(ns, &event, data, out);
        };
        let key = key.clone();
        let at = self.streams.get_index_of(&*key).expect("the stream was found");
        if self.streams[at].received.is_mixed {
            return self.read_mixed_message(ns, &event, data, out);
        }
        let index = data.index;
        match &*event {
            "content-block-start" | "content-block-finish" => {
                let Some(raw) = data.content else { return };
                let is_complete = event == "content-block-finish";
                self.streams[at].read_block(raw, index, is_complete, cx!(self, out));
            }
            "content-block-delta" => match data.delta {
                Some(delta) => self.streams[at].read_block_delta(delta, index, cx!(self, out)),
                None => self.tally.note("wrong type", "content-block-delta"),
            },
            "message-finish" => {
                self.streams[at].set_usage(data.usage);
                if let Some(response) = data.metadata {
                    self.streams[at].read_response(response, &mut self.tally);
                }
                self.finish_stream(&key, out);
            }
            "error" => {
                let message = raw_json::non_empty(data.message, &mut self.tally).unwrap_or_default();
                let code = raw_json::non_empty(data.code, &mut self.tally).map(Into::into);
                self.run.set_last_error(code, message.into());
                self.finish_stream(&key, out);
            }
            other => self.tally.note("unknown message event", other),
        }
    }

    /// Reads messages that stream concurrently in one namespace. Their deltas cannot be told apart, so each message
    /// is shown when it ends, with the blocks that ended since the previous one.
    fn read_mixed_message(&mut self, ns: &str, event: &str, data: &ProtocolData<'_>, out: &mut Vec<Event>) {
        match event {
            "content-block-finish" => {
                if let Some(raw) = data.content
                    && self.run.protocol.blocks.len() < MAX_BLOCKS
                {
                    self.run.protocol.blocks.push((ns.into(), raw.to_owned()));
                }
                return;
            }
            "message-finish" | "error" => {}
            _ => return,
        }
        let mut blocks = Vec::new();
        for (block_ns, raw) in std::mem::take(&mut self.run.protocol.blocks) {
            match *block_ns == *ns {
                true => blocks.push(raw),
                false => self.run.protocol.blocks.push((block_ns, raw)),
            }
        }
        let pieces = blocks.iter().flat_map(|raw| content_blocks::block_pieces(raw, &mut self.tally));
        let text = joined_text(pieces);
        // The message with the same text prefix, else the first one without any text.
        let here = || {
            self.streams.iter().filter(|(_, stream)| *stream.identity.ns == *ns && stream.received.is_mixed)
        };
        let found = here().find(|(_, stream)| stream.matches_prefix(&text) == Some(true));
        let found = found.or_else(|| here().find(|(_, stream)| stream.matches_prefix(&text).is_none()));
        let Some((key, _)) = found.or_else(|| here().next()) else { return };
        let key = key.clone();
        let at = self.streams.get_index_of(&*key).expect("the stream was found");
        self.streams[at].read_blocks(&blocks, &text, cx!(self, out));
        self.streams[at].set_usage(data.usage);
        if let Some(response) = data.metadata {
            self.streams[at].read_response(response, &mut self.tally);
        }
        self.finish_stream(&key, out);
    }

    fn start_protocol_message(&mut self, ns: &str, data: &ProtocolData<'_>, out: &mut Vec<Event>) {
        let role = raw_json::non_empty(data.role, &mut self.tally).unwrap_or(Cow::Borrowed("ai"));
        if let Some(id) = raw_json::non_empty(data.tool_call_id, &mut self.tally)
            && role == "tool"
        {
            let call = self.shown.call_in_scope(&id, ns);
            let id = raw_json::non_empty(data.id, &mut self.tally).map(Into::into);
            self.run.protocol.tool_message = Some(OpenToolMessage { ns: ns.into(), call, id });
            return;
        }
        if role != "ai" && role != "assistant" {
            return;
        }
        let Some(id) = raw_json::non_empty(data.id, &mut self.tally) else {
            return self.tally.note("wrong type", "message-start");
        };
        if self.shown.contains(&self.shown.message_id(&id)) {
            self.tally.note("message that was shown before", &id);
        }
        let mut is_mixed = false;
        for stream in self.streams.values_mut().filter(|stream| *stream.identity.ns == *ns) {
            (stream.received.is_mixed, is_mixed) = (true, true);
        }
        if is_mixed {
            self.tally.note("messages at one place at once", ns);
        }
        let response = data.metadata.and_then(ResponseMetadata::of).unwrap_or_default();
        let mut stream = ModelStream::new(&*id, ns);
        stream.identity.provider = raw_json::non_empty(response.provider, &mut self.tally).map(Into::into);
        stream.identity.model = raw_json::non_empty(response.model, &mut self.tally).map(Into::into);
        stream.identity.is_hidden = self.options.hides_node(ns, "");
        // The namespace is that of the graph, not of the node inside it.
        stream.identity.scope = ns.into();
        stream.received.is_mixed = is_mixed;
        if !stream.identity.is_hidden && !ns.is_empty() {
            stream.identity.owner = self.nodes.subagent_at(cx!(self, out), &format!("{ns}|"), None);
        }
        stream.set_native_id(Some(&id), cx!(self, out));
        self.add_stream(&id, stream, out);
    }

    /// Reads a tool result in the form of a message.
    fn read_tool_message(&mut self, ns: &str, event: &str, data: &ProtocolData<'_>, out: &mut Vec<Event>) {
        if event != "content-block-finish" {
            return;
        }
        let Some(OpenToolMessage { call, id, .. }) =
            self.run.protocol.tool_message.take_if(|message| *message.ns == *ns)
        else {
            return;
        };
        let pieces = data.content.map(|raw| content_blocks::pieces(raw, true, &mut self.tally));
        let text = joined_text(pieces.unwrap_or_default());
        let message = self.shown.result_message_id(id.as_deref(), &call);
        let result =
            NewToolResult { message: Some(message), content: text.into(), error: None, metadata: None };
        tool_calls::send_result(cx!(self, out), &call, result);
    }

    fn read_protocol_tool(&mut self, ns: &str, data: &ProtocolData<'_>, out: &mut Vec<Event>) {
        let event = raw_json::non_empty(data.event, &mut self.tally).unwrap_or_default();
        let Some(id) = raw_json::non_empty(data.tool_call_id, &mut self.tally) else {
            return self.tally.note("wrong type", "tools");
        };
        let call = self.shown.call_in_scope(&id, ns);
        match &*event {
            "tool-started" => {
                if self.calls.get(&call).is_none() {
                    let name = raw_json::non_empty(data.tool_name.or(data.name), &mut self.tally)
                        .unwrap_or_default();
                    let args = messages::arguments_text(data.input, &mut self.tally);
                    tool_calls::send_complete_call(cx!(self, out), &call, &name, &args, None, None, false);
                }
                self.calls.start_run(&id, &call, None);
            }
            "tool-finished" => tool_calls::send_tool_output(cx!(self, out), &call, data.output, ns),
            "tool-error" => {
                let message = raw_json::non_empty(data.message, &mut self.tally).unwrap_or_default();
                if is_control_flow(&message) {
                    self.calls.set_interrupted(&call, &message);
                } else {
                    self.calls.set_failure(&call, &message);
                }
            }
            "tool-output-delta" => match data.delta {
                Some(delta) => tool_calls::send_output_chunk(cx!(self, out), &call, delta),
                None => self.tally.note("wrong type", "tool-output-delta"),
            },
            other => self.tally.note("unknown tool event", other),
        }
    }
}

/// True if a `tool-error` reports control flow of the graph (an interrupt, a command to the parent) and no failure.
///
/// LangGraph fills the event with `tool_call_id` and `message` only, the message being Python's `str(error)`. No
/// member names the exception class, so that the text is all there is to decide on.
fn is_control_flow(message: &str) -> bool {
    message.starts_with("(Interrupt(")
        || ["GraphInterrupt", "ParentCommand", "GraphBubbleUp"].iter().any(|class| message.contains(class))
}

/// The text pieces, joined.
fn joined_text<'a>(pieces: impl IntoIterator<Item = ContentPiece<'a>>) -> String {
    let texts = pieces.into_iter().filter_map(|piece| match piece {
        ContentPiece::Text { text, .. } => Some(text),
        _ => None,
    });
    texts.collect()
}
