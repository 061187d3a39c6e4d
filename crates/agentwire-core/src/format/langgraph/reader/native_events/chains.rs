//! Native events of chains, among them the nodes of a graph.

use indexmap::IndexMap;
use serde_json::value::RawValue;

use crate::{
    event::{Body, Event, MessageId, ToolCallId},
    format::langgraph::{
        namespace::outer,
        raw_json,
        reader::{
            LangGraphReader, cx,
            messages::{self, CompleteCall, ShownIds},
            native_message::MessageKind,
            node_runs::NodeRun,
            output_rules::OutputRules,
        },
        wire::{EventData, EventMetadata, EventName, NativeCall, NativeFrame, NativeMessage, StreamMode},
    },
};

/// The tag of chains that LangChain hides from traces.
const HIDDEN_TAG: &str = "langsmith:hidden";

/// Prefix of the tag that marks the run of a node.
const NODE_TAG_PREFIX: &str = "graph:step:";

/// Bound on the chains that are shown as reasoning at once.
const MAX_CHAINS: usize = 1024;

impl LangGraphReader {
    pub(super) fn chain_start(
        &mut self,
        event: EventName,
        run: &str,
        native: &NativeFrame<'_>,
        data: &EventData<'_>,
        out: &mut Vec<Event>,
    ) {
        let tags = raw_json::strings(native.tags, &mut self.tally);
        if tags.iter().any(|tag| tag == HIDDEN_TAG) {
            return;
        }
        let name = self.runnable_name(native, data);
        if self.options.thinking_chains && event == EventName::ChainStart && !self.is_hidden(native) {
            self.show_chain(run, &name, out);
        }
        let meta = native.metadata.and_then(EventMetadata::of).unwrap_or_default();
        let tally = &mut self.tally;
        let ns = raw_json::non_empty(meta.ns.or(meta.inner_ns), tally).unwrap_or_default();
        let node = raw_json::non_empty(meta.node, tally);
        self.run.input.is_graph |= node.is_some();
        let parents = raw_json::strings(native.parent_ids, tally);
        let is_node = event == EventName::NodeStart
            || tags.iter().any(|tag| tag.starts_with(NODE_TAG_PREFIX))
            || tags.is_empty() && node.as_deref() == Some(&*name) && {
                let parent = parents.last().and_then(|parent| self.nodes.get(parent));
                parent.is_none_or(|parent| *parent.ns != *ns)
            };
        if !is_node {
            return;
        }
        let mut started = NodeRun::new(&name, &ns);
        started.superstep = raw_json::integer(meta.step);
        started.rules = OutputRules::of(&meta, &mut self.tally);
        started.metadata =
            if self.options.step_metadata { self.shown_metadata(native, Some(run)) } else { None };
        started.is_hidden = self.options.hides_tags(&tags) || self.options.hides_node(&ns, &name);
        // A node that the outer graph pulls receives the complete conversation.
        let path = raw_json::strings(meta.path, &mut self.tally);
        let is_pulled = path.first().is_some_and(|how| how == "__pregel_pull");
        let is_outermost = parents.len() == 1 && !ns.contains('|');
        if let Some(input) = data.input {
            if is_pulled
                && is_outermost
                && let Some(list) = raw_json::member(input, "messages")
            {
                self.read_conversation(list, out);
            }
            started.assigned_calls = self.assigned_calls(input, outer(&ns));
            if !(is_pulled && is_outermost) {
                started.unseen_message = self.unseen_message(input);
            }
        }
        // A node that is retried after an error, or that handed over to another graph, has no end event.
        for stale in self.nodes.superseded_by(run, &started, is_outermost) {
            let ns = self.nodes.get(&stale).map(|node| node.ns.clone()).unwrap_or_default();
            self.finish_streams_at(&ns, out);
            self.finish_streams_of_node(&stale, out);
            self.fail_calls(Some(&stale), out);
            self.nodes.finish(cx!(self, out), &stale);
        }
        self.nodes.start(cx!(self, out), run, started);
    }

    /// The tool calls in the input of a node.
    pub(in super::super) fn assigned_calls(&mut self, input: &RawValue, scope: &str) -> Vec<ToolCallId> {
        let mut calls = Vec::new();
        for raw in messages::one_or_many(input) {
            let Some(call) = NativeCall::of(raw) else { continue };
            let is_call = call.tool_call.is_some()
                || call.kind.is_some_and(|kind| kind.get() == "\"tool_call\"") && call.args.is_some();
            if !is_call {
                continue;
            }
            if let Some(CompleteCall { id: Some(id), name, args }) =
                messages::complete_call(raw, &mut self.tally)
            {
                let id = self.shown.call_in_scope(&id, scope);
                self.calls.add_earlier(&id, &name, &args, false);
                calls.push(id);
            }
        }
        calls
    }

    /// The assistant message in a node's input that contains tool calls and was never shown: a run that resumes
    /// inside a nested graph starts with its tools.
    fn unseen_message(&mut self, input: &RawValue) -> Option<Box<RawValue>> {
        let list = messages::one_or_many(raw_json::member(input, "messages")?);
        let raw = list.into_iter().rev().find(|raw| {
            NativeMessage::read(raw, &mut self.tally).is_some_and(|(kind, _)| kind == MessageKind::Ai)
        })?;
        let (_, message) = NativeMessage::read(raw, &mut self.tally)?;
        let id = message.id(&mut self.tally)?;
        let is_known =
            self.shown.contains(&self.shown.message_id(&id)) || self.stream_of_message(&id).is_some();
        let has_calls = !messages::complete_calls(&message, &mut self.tally).is_empty();
        (has_calls && !is_known && !self.run.conversation.history.contains(&*id)).then(|| raw.to_owned())
    }

    pub(super) fn chain_chunk(&mut self, run: &str, data: &EventData<'_>, frame: &str, out: &mut Vec<Event>) {
        let Some(chunk) = data.chunk else { return };
        if !self.run.is_root(run) {
            return;
        }
        // With several stream modes the root's chunks are `[mode, data]` or `[namespace, mode, data]`.
        if let Some(tuple) = raw_json::elements(chunk) {
            let (ns, mode, data) = match &tuple[..] {
                [mode, data] => (None, *mode, *data),
                [ns, mode, data] => (Some(*ns), *mode, *data),
                _ => return,
            };
            let Some(mode) =
                raw_json::string(mode, &mut self.tally).and_then(|mode| StreamMode::parse(&mode))
            else {
                return;
            };
            let ns = raw_json::strings(ns, &mut self.tally).join("|");
            return self.read_mode(mode, &ns, data, frame, out);
        }
        if self.run.input.is_graph {
            self.read_mode(StreamMode::Updates, "", chunk, frame, out);
        }
    }

    pub(super) fn chain_end(&mut self, run: &str, data: &EventData<'_>, out: &mut Vec<Event>) {
        self.finish_chain(run, out);
        let Some(node) = self.nodes.get(run) else { return };
        let (ns, is_hidden, rules) = (node.ns.clone(), node.is_hidden, node.rules.clone());
        self.finish_streams_at(&ns, out);
        self.finish_streams_of_node(run, out);
        if let Some(output) = data.output
            && is_hidden
        {
            self.hide_returned(output);
        } else if let Some(output) = data.output {
            let owner = self.nodes.subagent_at(cx!(self, out), &ns, None);
            self.read_returned_messages(output, &ns, owner.as_ref(), rules.as_deref(), out);
        }
        self.fail_calls(Some(run), out);
        self.nodes.finish(cx!(self, out), run);
    }

    fn show_chain(&mut self, run: &str, name: &str, out: &mut Vec<Event>) {
        if self.chains.len() >= MAX_CHAINS || self.chains.contains_key(run) {
            return self.tally.note("too many chains", name);
        }
        let id = MessageId::from(format!("chain-{run}"));
        self.chains.insert(run.into(), id.clone());
        out.push(Event::new(Body::ReasoningStart { message: id, title: Some(name.into()) }));
    }

    pub(super) fn finish_chain(&mut self, run: &str, out: &mut Vec<Event>) {
        if let Some(message) = self.chains.shift_remove(run) {
            out.push(Event::new(Body::ReasoningEnd { message }));
        }
    }

    /// Ends all chains that are shown as reasoning.
    pub(in super::super) fn finish_chains(&mut self, out: &mut Vec<Event>) {
        let chains: IndexMap<Box<str>, MessageId> = std::mem::take(&mut self.chains);
        for (_, message) in chains.into_iter().rev() {
            out.push(Event::new(Body::ReasoningEnd { message }));
        }
    }
}
