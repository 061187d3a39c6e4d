//! Protocol v2 of the server: `{"type":"event","method":…,"params":{…}}`.
//!
//! It is close to the canonical events. Only the blocks of a message do not say which message they belong to:
//! that is the latest one begun at their place.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    super::{
        namespace::{node_of, outer},
        raw_json,
        wire::{Method, Mode, Native, Params, ProtocolData, Response},
    },
    LangGraphReader,
    content_blocks::{self, Piece},
    cx,
    messages::{self, Naming},
    model_stream::Lane,
    node_runs::Node,
    run::ToolMessage,
    thread_state, tool_calls,
};
use crate::event::Event;

/// How many blocks of messages at one place wait for the end of their message; answers have a handful.
const MAX_BLOCKS: usize = 4096;

impl LangGraphReader {
    /// The answer to a command names the run that it started.
    pub(super) fn protocol_answer(&mut self, result: &RawValue) {
        let data = ProtocolData::of(result).unwrap_or_default();
        if let Some(run) = raw_json::filled(data.run_id, &mut self.tally) {
            if self.run.is_over() {
                self.next_run();
            }
            self.run.native = Some(run.into());
        }
    }

    pub(super) fn protocol(&mut self, native: &Native<'_>, frame: &str, out: &mut Vec<Event>) {
        let before = out.len();
        let params = native.params.and_then(Params::of).unwrap_or_default();
        self.protocol_event(native, &params, frame, out);
        if let Some(timestamp) = raw_json::integer(params.timestamp) {
            for event in &mut out[before..] {
                event.timestamp = Some(timestamp);
            }
        }
    }

    fn protocol_event(
        &mut self,
        native: &Native<'_>,
        params: &Params<'_>,
        frame: &str,
        out: &mut Vec<Event>,
    ) {
        let method =
            native.method.and_then(|method| raw_json::string(method, &mut self.tally)).unwrap_or_default();
        let ns = raw_json::strings(params.namespace, &mut self.tally).join("|");
        let Some(raw) = params.data else {
            return self.tally.note("wrong type", &format!("{method} data"));
        };
        let Some(known) = Method::parse(&method) else {
            self.begin_if_idle(out);
            return self.tally.note("unknown method", &method);
        };
        let data = ProtocolData::of(raw).unwrap_or_default();
        if known == Method::Lifecycle {
            return self.lifecycle(native, &ns, &data, out);
        }
        if self.run.is_over() {
            return self.tally.note("event after the end", &method);
        }
        self.begin_if_idle(out);
        self.run.is_graph = true;
        match known {
            Method::Messages => self.protocol_message(&ns, &data, out),
            Method::Tools => self.protocol_tool(&ns, &data, out),
            Method::InputRequested => {
                let id = raw_json::filled(data.interrupt_id, &mut self.tally);
                let id = id.unwrap_or(Cow::Borrowed("interrupt-1")).as_ref().into();
                let interrupt = thread_state::interrupt(id, data.payload, None, &ns, &mut self.tally);
                self.interrupt(interrupt);
            }
            Method::Updates => match raw_json::filled(data.node, &mut self.tally) {
                Some(node) => {
                    if let Some(values) = data.values {
                        self.update(&ns, &node, values, out);
                    }
                }
                None => self.updates(&ns, raw, out),
            },
            Method::Custom => match raw_json::filled(data.name, &mut self.tally) {
                Some(name) => self.custom(&name, data.payload, "", out),
                None => self.written(data.payload.unwrap_or(raw), out),
            },
            Method::Values => self.mode(Mode::Values, &ns, raw, frame, out),
            Method::Tasks => self.mode(Mode::Tasks, &ns, raw, frame, out),
            Method::Debug => self.mode(Mode::Debug, &ns, raw, frame, out),
            Method::Checkpoints => self.mode(Mode::Checkpoints, &ns, raw, frame, out),
            Method::Lifecycle => {}
        }
        // This protocol says when a run ends, so a closed stream is a cut one.
        self.run.has_modes = false;
    }

    fn lifecycle(&mut self, native: &Native<'_>, ns: &str, data: &ProtocolData<'_>, out: &mut Vec<Event>) {
        let event = raw_json::filled(data.event, &mut self.tally).unwrap_or_default();
        let starts = matches!(&*event, "running" | "started");
        if !ns.is_empty() {
            if self.run.is_active() {
                self.nested(ns, starts, data, out);
            }
            return;
        }
        if starts {
            if self.run.is_active() {
                return;
            }
            if self.run.is_over() {
                self.next_run();
            }
            // `synth:RUN:lc||running`
            let id = raw_json::filled(native.event_id, &mut self.tally).unwrap_or_default();
            let run = id.strip_prefix("synth:").and_then(|rest| rest.split(':').next());
            self.run.is_graph = true;
            return self.begin(None, run, out);
        }
        if self.run.is_over() {
            return self.tally.note("event after the end", &event);
        }
        match &*event {
            "completed" | "interrupted" => self.finish(out),
            "failed" => self.failed(data.error, out),
            other => self.tally.note("unknown lifecycle event", other),
        }
    }

    /// A nested graph begins or ends; it runs inside the node that the last segment names.
    fn nested(&mut self, ns: &str, starts: bool, data: &ProtocolData<'_>, out: &mut Vec<Event>) {
        if self.run.has_tasks {
            return;
        }
        if starts && !self.nodes.is_running(ns) {
            let segment = ns.rsplit('|').next().unwrap_or(ns);
            let mut node = Node::new(node_of(segment), ns);
            node.hidden = self.settings.hides_node(ns, "");
            let cause = data.cause.and_then(ProtocolData::of).unwrap_or_default();
            if let Some(call) = raw_json::filled(cause.tool_call_id, &mut self.tally) {
                node.given.push(self.client.call_at(&call, outer(ns)));
            }
            self.nodes.start(cx!(self, out), ns, node);
        } else if !starts {
            self.finish_lanes_at(ns, out);
            self.nodes.finish(cx!(self, out), ns);
        }
    }

    fn protocol_message(&mut self, ns: &str, data: &ProtocolData<'_>, out: &mut Vec<Event>) {
        let event = raw_json::filled(data.event, &mut self.tally).unwrap_or_default();
        if event == "message-start" {
            return self.protocol_start(ns, data, out);
        }
        let Some((key, _)) = self.lanes.iter().rev().find(|(_, lane)| *lane.ns == *ns) else {
            // The result of a tool, said as a message; its text comes with the last block.
            return self.tool_message(ns, &event, data, out);
        };
        let key = key.clone();
        let at = self.lanes.get_index_of(&*key).expect("the lane was found");
        if self.lanes[at].mixed {
            return self.mixed_message(ns, &event, data, out);
        }
        let index = data.index;
        match &*event {
            "content-block-start" | "content-block-finish" => {
                let Some(raw) = data.content else { return };
                let whole = event == "content-block-finish";
                self.lanes[at].block(raw, index, whole, cx!(self, out));
            }
            "content-block-delta" => match data.delta {
                Some(delta) => self.lanes[at].block_delta(delta, index, cx!(self, out)),
                None => self.tally.note("wrong type", "content-block-delta"),
            },
            "message-finish" => {
                self.lanes[at].cost(data.usage);
                if let Some(response) = data.metadata {
                    self.lanes[at].response(response, &mut self.tally);
                }
                self.finish_lane(&key, out);
            }
            "error" => {
                let message = raw_json::filled(data.message, &mut self.tally).unwrap_or_default();
                let code = raw_json::filled(data.code, &mut self.tally).map(Into::into);
                self.run.suspect(code, message.into());
                self.finish_lane(&key, out);
            }
            other => self.tally.note("unknown message event", other),
        }
    }

    /// Messages that stream at one place at once: their pieces cannot be told apart, so each is shown as a whole
    /// when it ends. Its blocks are those that have ended since the last one did.
    fn mixed_message(&mut self, ns: &str, event: &str, data: &ProtocolData<'_>, out: &mut Vec<Event>) {
        match event {
            "content-block-finish" => {
                if let Some(raw) = data.content
                    && self.run.blocks.len() < MAX_BLOCKS
                {
                    self.run.blocks.push((ns.into(), raw.to_owned()));
                }
                return;
            }
            "message-finish" | "error" => {}
            _ => return,
        }
        let mut blocks = Vec::new();
        for (place, raw) in std::mem::take(&mut self.run.blocks) {
            match *place == *ns {
                true => blocks.push(raw),
                false => self.run.blocks.push((place, raw)),
            }
        }
        let text: String = blocks
            .iter()
            .flat_map(|raw| content_blocks::block_pieces(raw, &mut self.tally))
            .filter_map(|piece| match piece {
                Piece::Text { text, .. } => Some(text.into_owned()),
                _ => None,
            })
            .collect();
        // The message whose beginning was shown, else the first of which nothing was.
        let here = || self.lanes.iter().filter(|(_, lane)| *lane.ns == *ns && lane.mixed);
        let found = here().find(|(_, lane)| lane.begins(&text) == Some(true));
        let found = found.or_else(|| here().find(|(_, lane)| lane.begins(&text).is_none()));
        let Some((key, _)) = found.or_else(|| here().next()) else { return };
        let key = key.clone();
        let at = self.lanes.get_index_of(&*key).expect("the lane was found");
        self.lanes[at].blocks(&blocks, &text, cx!(self, out));
        self.lanes[at].cost(data.usage);
        if let Some(response) = data.metadata {
            self.lanes[at].response(response, &mut self.tally);
        }
        self.finish_lane(&key, out);
    }

    fn protocol_start(&mut self, ns: &str, data: &ProtocolData<'_>, out: &mut Vec<Event>) {
        let role = raw_json::filled(data.role, &mut self.tally).unwrap_or(Cow::Borrowed("ai"));
        if let Some(id) = raw_json::filled(data.tool_call_id, &mut self.tally)
            && role == "tool"
        {
            let call = self.client.call_at(&id, ns);
            let id = raw_json::filled(data.id, &mut self.tally).map(Into::into);
            self.run.tool_message = Some(ToolMessage { place: ns.into(), call, id });
            return;
        }
        if role != "ai" && role != "assistant" {
            return;
        }
        let Some(id) = raw_json::filled(data.id, &mut self.tally) else {
            return self.tally.note("wrong type", "message-start");
        };
        if self.client.has(&self.client.message(&id)) {
            self.tally.note("message that was shown before", &id);
        }
        let mut mixed = false;
        for lane in self.lanes.values_mut().filter(|lane| *lane.ns == *ns) {
            (lane.mixed, mixed) = (true, true);
        }
        if mixed {
            self.tally.note("messages at one place at once", ns);
        }
        let response = data.metadata.and_then(Response::of).unwrap_or_default();
        let mut lane = Lane::new(&*id, ns);
        lane.provider = raw_json::filled(response.provider, &mut self.tally).map(Into::into);
        lane.model = raw_json::filled(response.model, &mut self.tally).map(Into::into);
        lane.hidden = self.settings.hides_node(ns, "");
        // A place here is that of the graph, not of the node inside it.
        (lane.scope, lane.mixed) = (ns.into(), mixed);
        if !lane.hidden && !ns.is_empty() {
            lane.owner = self.nodes.owner(cx!(self, out), &format!("{ns}|"), None);
        }
        lane.named(Some(&id), cx!(self, out));
        self.lane(&id, || lane, out);
    }

    /// What a tool returned, when it comes as a message.
    fn tool_message(&mut self, ns: &str, event: &str, data: &ProtocolData<'_>, out: &mut Vec<Event>) {
        if event != "content-block-finish" {
            return;
        }
        let Some(ToolMessage { call, id, .. }) = self.run.tool_message.take_if(|begun| *begun.place == *ns)
        else {
            return;
        };
        let text =
            data.content.map(|raw| content_blocks::pieces(raw, true, &mut self.tally)).unwrap_or_default();
        let text: String = text
            .into_iter()
            .filter_map(|piece| match piece {
                Piece::Text { text, .. } => Some(text),
                _ => None,
            })
            .collect();
        let message = self.client.result(id.as_deref(), &call);
        let answer =
            tool_calls::Answer { message: Some(message), content: text.into(), error: None, metadata: None };
        tool_calls::answer(cx!(self, out), &call, answer);
    }

    fn protocol_tool(&mut self, ns: &str, data: &ProtocolData<'_>, out: &mut Vec<Event>) {
        let event = raw_json::filled(data.event, &mut self.tally).unwrap_or_default();
        let Some(id) = raw_json::filled(data.tool_call_id, &mut self.tally) else {
            return self.tally.note("wrong type", "tools");
        };
        let call = self.client.call_at(&id, ns);
        match &*event {
            "tool-started" => {
                if self.calls.get(&call).is_none() {
                    let name =
                        raw_json::filled(data.tool_name.or(data.name), &mut self.tally).unwrap_or_default();
                    let args = messages::arguments(data.input, &mut self.tally);
                    tool_calls::whole(cx!(self, out), &call, &name, &args, None, None, false);
                }
                self.calls.begin(&id, &call, None);
            }
            "tool-finished" => tool_calls::answer_output(cx!(self, out), &call, data.output, ns),
            "tool-error" => {
                let message = raw_json::filled(data.message, &mut self.tally).unwrap_or_default();
                let stops = ["GraphInterrupt", "ParentCommand", "GraphBubbleUp"];
                if stops.iter().any(|stop| message.contains(stop)) || message.starts_with("(Interrupt(") {
                    self.calls.interrupt(&call, &message);
                } else {
                    self.calls.fail(&call, &message);
                }
            }
            "tool-output-delta" => {}
            other => self.tally.note("unknown tool event", other),
        }
    }
}
