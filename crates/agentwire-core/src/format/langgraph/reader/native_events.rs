//! Native events: `astream_events` version 2, and the names of other bridges.

use std::borrow::Cow;

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::{
    super::{
        namespace::outer,
        options::Steps,
        raw_json,
        wire::{self, Block, Call, Data, EventName, Meta, Mode, Native},
    },
    LangGraphReader, MAX_CHAINS, cx,
    messages::{self, Kind, Naming, WholeCall},
    model_stream::Lane,
    node_output,
    node_runs::Node,
    run::failure,
    tool_calls::{self, Answer},
};
use crate::{
    event::{Body, Event, MessageId, ToolCallId},
    json::{Json, Object},
};

/// The tag of chains that nobody shall see.
const HIDDEN: &str = "langsmith:hidden";

/// The tag of a node's own run.
const NODE: &str = "graph:step:";

/// What stops a tool without being a failure: an interrupt, and orders to an outer graph.
const BUBBLES: &[&str] = &["GraphInterrupt", "NodeInterrupt", "ParentCommand", "GraphBubbleUp"];

impl LangGraphReader {
    /// One native event. `framed`: the server sent it, and closes the stream after the last one.
    pub(super) fn event(
        &mut self,
        name: EventName,
        native: &Native<'_>,
        frame: &str,
        framed: bool,
        out: &mut Vec<Event>,
    ) {
        let data = native.data.and_then(Data::of).unwrap_or_default();
        let run = match raw_json::filled(native.run_id, &mut self.tally) {
            Some(run) => run,
            None => {
                let runnable = self.name(native, &data);
                Cow::Owned(self.unnamed.run(name, &runnable).into())
            }
        };
        if !self.belongs(name, &run, native, out) {
            return;
        }
        self.client.early_results = true;
        self.run.has_events = true;
        if native.data.is_none_or(|data| !raw_json::is_object(data)) && name != EventName::CustomEvent {
            self.tally.note("wrong type", &format!("{} data", name.as_str()));
        }
        match name {
            EventName::ChatModelStream => self.model_stream(&run, native, &data, frame, out),
            EventName::ChatModelStart | EventName::LlmStart => self.model_start(&run, native, out),
            EventName::ChatModelEnd => self.model_end(&run, native, &data, out),
            EventName::LlmStream => self.llm_stream(&run, native, &data, out),
            EventName::LlmEnd => self.llm_end(&run, native, &data, out),
            EventName::ChainStart | EventName::NodeStart => self.chain_start(name, &run, native, &data, out),
            EventName::ChainStream | EventName::NodeStream => self.chain_stream(&run, &data, frame, out),
            EventName::ChainEnd | EventName::NodeEnd => self.chain_end(&run, &data, out),
            EventName::ToolStart => self.tool_start(&run, native, &data, out),
            EventName::ToolEnd => self.tool_end(&run, native, &data, out),
            EventName::ToolError => self.tool_error(&run, native, &data, out),
            EventName::AgentAction => self.agent_action(&run, native, &data, out),
            EventName::CustomEvent => self.custom_event(&run, native, out),
            _ if name.is_failure() => self.runnable_failed(&run, &data, out),
            _ => {}
        }
        if name.is_end() && self.run.is_root(&run) {
            self.root_end(name, data.output, out);
            if !framed {
                self.finish(out);
            }
        } else if name.is_failure() && self.run.is_root(&run) {
            let error = data.error.or(native.data);
            self.failed(error, out);
        }
    }

    /// Whether an event is one of this run; begins the run with the first one.
    fn belongs(&mut self, name: EventName, run: &str, native: &Native<'_>, out: &mut Vec<Event>) -> bool {
        let parents = raw_json::strings(native.parent_ids, &mut self.tally);
        let root: &str = parents.first().map_or(run, |root| root);
        if let Some(known) = self.run.root() {
            let foreign = match parents.first() {
                Some(root) => **root != *known,
                // Old versions leave the parents out. Then only a chain that is no node can be another root.
                None => {
                    run != known
                        && native.parent_ids.is_some()
                        && name == EventName::ChainStart
                        && native.metadata.and_then(Meta::of).is_none_or(|meta| meta.node.is_none())
                }
            };
            if foreign && self.run.is_over() {
                self.next_run();
            } else if foreign {
                self.tally.note("event of another run", root);
                return false;
            }
        } else if self.run.is_over() {
            self.next_run();
        }
        if self.run.is_over() {
            self.tally.note("event after the end", root);
            return false;
        }
        // Bridges that leave the parents out do not say what the root is; a chain that comes first must be it.
        let is_known = native.parent_ids.is_some() || name == EventName::ChainStart && !self.run.is_active();
        if self.run.root().is_none() && is_known {
            self.run.set_root(root);
        }
        if !self.run.is_active() {
            let meta = native.metadata.and_then(Meta::of).unwrap_or_default();
            let integration = raw_json::filled(meta.integration, &mut self.tally);
            self.run.is_graph |= meta.node.is_some() || integration.is_some_and(|name| name == "langgraph");
            let thread = raw_json::filled(meta.thread_id, &mut self.tally);
            let named = !parents.is_empty() || raw_json::filled(native.run_id, &mut self.tally).is_some();
            let known_root = (is_known && named).then_some(root);
            self.begin(thread.as_deref(), known_root, out);
            if self.settings.metadata
                && root == run
                && let Some(started) = out.last_mut()
            {
                let facts = self.facts(native, None);
                *started = started.clone().with_metadata(facts);
            }
        }
        true
    }

    /// The name and metadata of a graph or a node, and the run of a node.
    fn facts(&mut self, native: &Native<'_>, run: Option<&str>) -> Option<Object> {
        let name = raw_json::filled(native.name, &mut self.tally);
        let metadata =
            native.metadata.map(|raw| raw_json::json(raw, &mut self.tally)).and_then(Json::into_object);
        let named = [("name", name.as_deref()), ("node_id", run)];
        let named = named.into_iter().filter_map(|(key, text)| Some((key, Json::string(text?))));
        let named = Object::from_entries(named);
        Some(metadata.map_or(named.clone(), |metadata| named.merged(&metadata))).filter(|it| !it.is_empty())
    }

    pub(super) fn is_hidden(&mut self, native: &Native<'_>) -> bool {
        if !self.settings.hide_tags.is_empty() {
            let tags = raw_json::strings(native.tags, &mut self.tally);
            if self.settings.hides_tags(&tags) {
                return true;
            }
        }
        if self.settings.hide_nodes.is_empty() {
            return false;
        }
        let meta = native.metadata.and_then(Meta::of).unwrap_or_default();
        let ns = raw_json::filled(meta.ns, &mut self.tally).unwrap_or_default();
        let node = raw_json::filled(meta.node, &mut self.tally).unwrap_or_default();
        self.settings.hides_node(&ns, &node)
    }

    // --- models -----------------------------------------------------------------------------------------

    fn model_lane(&mut self, run: &str, native: &Native<'_>, out: &mut Vec<Event>) {
        if self.lanes.contains_key(run) {
            return;
        }
        let hidden = self.is_hidden(native);
        let meta = native.metadata.and_then(Meta::of).unwrap_or_default();
        let tally = &mut self.tally;
        let ns = raw_json::filled(meta.ns.or(meta.inner_ns), tally).unwrap_or_default();
        let agent = raw_json::filled(meta.agent, tally);
        let mut lane = Lane::new(format!("lc_run--{run}"), &ns);
        let parents = raw_json::strings(native.parent_ids, tally);
        let node = parents.iter().rev().find(|parent| self.nodes.is_running(parent));
        lane.node = node.map(|node| node.as_ref().into());
        lane.provider = raw_json::filled(meta.provider, tally).map(Into::into);
        lane.model = raw_json::filled(meta.model, tally).map(Into::into);
        lane.hidden = hidden;
        if !hidden {
            lane.owner = self.nodes.owner(cx!(self, out), &ns, agent.as_deref());
        }
        self.lane(run, || lane, out);
    }

    fn model_start(&mut self, run: &str, native: &Native<'_>, out: &mut Vec<Event>) {
        self.model_lane(run, native, out);
    }

    fn model_stream(
        &mut self,
        run: &str,
        native: &Native<'_>,
        data: &Data<'_>,
        frame: &str,
        out: &mut Vec<Event>,
    ) {
        let Some(chunk) = data.chunk else {
            return self.tally.note("wrong type", "on_chat_model_stream data.chunk");
        };
        self.model_lane(run, native, out);
        let key = run.to_owned();
        match wire::Message::read(chunk, &mut self.tally) {
            Some((_, message)) => self.chunk(&key, &message, frame, out),
            // A chunk without a type, and one that is only text.
            None => match wire::Message::of(chunk) {
                Some(message) if message.content.is_some() => self.chunk(&key, &message, frame, out),
                Some(message) if message.text.is_some() => {
                    let message = wire::Message { content: message.text, ..Default::default() };
                    self.chunk(&key, &message, frame, out);
                }
                _ if chunk.get().starts_with('"') => {
                    let message = wire::Message { content: Some(chunk), ..Default::default() };
                    self.chunk(&key, &message, frame, out);
                }
                _ => self.tally.note("wrong type", "on_chat_model_stream data.chunk"),
            },
        }
    }

    fn model_end(&mut self, run: &str, native: &Native<'_>, data: &Data<'_>, out: &mut Vec<Event>) {
        self.model_lane(run, native, out);
        let message = data.output.and_then(|raw| generation(raw, "message").or(Some(raw)));
        let message = message.and_then(|raw| wire::Message::read(raw, &mut self.tally));
        match message {
            Some((_, message)) => {
                if let Some(at) = self.lanes.get_index_of(run) {
                    self.lanes[at].complete(&message, cx!(self, out));
                }
            }
            None => self.tally.note("wrong type", "on_chat_model_end data.output"),
        }
        self.finish_lane(run, out);
    }

    fn llm_stream(&mut self, run: &str, native: &Native<'_>, data: &Data<'_>, out: &mut Vec<Event>) {
        let chunk = data.chunk;
        let text = chunk.and_then(|raw| Block::of(raw).and_then(|block| block.text).or(Some(raw)));
        let Some(text) = text.and_then(|raw| raw_json::string(raw, &mut self.tally)) else {
            return self.tally.note("wrong type", "on_llm_stream data.chunk");
        };
        self.model_lane(run, native, out);
        if let Some(at) = self.lanes.get_index_of(run) {
            self.lanes[at].text(&text, cx!(self, out));
        }
    }

    fn llm_end(&mut self, run: &str, native: &Native<'_>, data: &Data<'_>, out: &mut Vec<Event>) {
        self.model_lane(run, native, out);
        let text = data.output.and_then(|output| generation(output, "text"));
        let text = text.and_then(|raw| raw_json::string(raw, &mut self.tally));
        if text.is_none() {
            self.tally.note("wrong type", "on_llm_end data.output");
        }
        if let Some(at) = self.lanes.get_index_of(run) {
            self.lanes[at].text_so_far(&text.unwrap_or_default(), cx!(self, out));
            let usage = data
                .output
                .and_then(|raw| member(raw, "llm_output"))
                .and_then(|raw| member(raw, "token_usage"));
            self.lanes[at].cost(usage);
        }
        self.finish_lane(run, out);
    }

    // --- chains and nodes -------------------------------------------------------------------------------

    fn chain_start(
        &mut self,
        event: EventName,
        run: &str,
        native: &Native<'_>,
        data: &Data<'_>,
        out: &mut Vec<Event>,
    ) {
        let tags = raw_json::strings(native.tags, &mut self.tally);
        if tags.iter().any(|tag| tag == HIDDEN) {
            return;
        }
        let name = self.name(native, data);
        if self.settings.thinking_chains && event == EventName::ChainStart && !self.is_hidden(native) {
            self.think_chain(run, &name, out);
        }
        let meta = native.metadata.and_then(Meta::of).unwrap_or_default();
        let tally = &mut self.tally;
        let ns = raw_json::filled(meta.ns.or(meta.inner_ns), tally).unwrap_or_default();
        let node = raw_json::filled(meta.node, tally);
        self.run.is_graph |= node.is_some();
        let parents = raw_json::strings(native.parent_ids, tally);
        let is_node = event == EventName::NodeStart
            || tags.iter().any(|tag| tag.starts_with(NODE))
            || tags.is_empty() && node.as_deref() == Some(&*name) && {
                let parent = parents.last().and_then(|parent| self.nodes.get(parent));
                parent.is_none_or(|parent| *parent.ns != *ns)
            };
        if !is_node {
            return;
        }
        let mut started = Node::new(&name, &ns);
        started.number = raw_json::integer(meta.step);
        started.facts = if self.settings.metadata { self.facts(native, Some(run)) } else { None };
        started.hidden = self.settings.hides_tags(&tags) || self.settings.hides_node(&ns, &name);
        // What the outer graph hands to a node that it pulls is its conversation, whole and exact.
        let pulled =
            raw_json::strings(meta.path, &mut self.tally).first().is_some_and(|how| how == "__pregel_pull");
        let outermost = parents.len() == 1 && !ns.contains('|');
        if let Some(input) = data.input {
            if pulled
                && outermost
                && let Some(list) = member(input, "messages")
            {
                self.conversation(list, out);
            }
            started.given = self.given(input, outer(&ns));
            if !(pulled && outermost) {
                started.asked = self.asked(input);
            }
        }
        // A node that failed and is tried again, or that handed over to another graph, has no end.
        for stale in self.nodes.outlived(run, &started, outermost) {
            let place = self.nodes.get(&stale).map(|node| node.ns.clone()).unwrap_or_default();
            self.finish_lanes_at(&place, out);
            self.finish_lanes_in(&stale, out);
            self.fail_calls(Some(&stale), out);
            self.nodes.finish(cx!(self, out), &stale);
        }
        self.nodes.start(cx!(self, out), run, started);
    }

    /// The calls that a node is given as its input.
    pub(super) fn given(&mut self, input: &RawValue, scope: &str) -> Vec<ToolCallId> {
        let list = messages::list(input);
        let mut given = Vec::new();
        for raw in list {
            let Some(call) = Call::of(raw) else { continue };
            let is_call = call.tool_call.is_some()
                || call.kind.is_some_and(|kind| kind.get() == "\"tool_call\"") && call.args.is_some();
            if !is_call {
                continue;
            }
            if let Some(WholeCall { id: Some(id), name, args }) = messages::whole_call(raw, &mut self.tally) {
                let id = self.client.call_at(&id, scope);
                self.calls.remember(&id, &name, &args, false);
                given.push(id);
            }
        }
        given
    }

    /// The answer in a node's input that asks for tools and was never shown: a run that goes on inside a nested
    /// graph begins with its tools.
    fn asked(&mut self, input: &RawValue) -> Option<Box<RawValue>> {
        let list = messages::list(member(input, "messages")?);
        let raw = list.into_iter().rev().find(|raw| {
            wire::Message::read(raw, &mut self.tally).is_some_and(|(kind, _)| kind == Kind::Ai)
        })?;
        let (_, message) = wire::Message::read(raw, &mut self.tally)?;
        let id = message.id(&mut self.tally)?;
        let known = self.client.has(&self.client.message(&id)) || self.lane_of(&id).is_some();
        let asks = !messages::calls(&message, &mut self.tally).is_empty();
        (asks && !known && !self.run.history.contains(&*id)).then(|| raw.to_owned())
    }

    fn chain_stream(&mut self, run: &str, data: &Data<'_>, frame: &str, out: &mut Vec<Event>) {
        let Some(chunk) = data.chunk else { return };
        if !self.run.is_root(run) {
            return;
        }
        // With several stream modes the root's chunks are `[mode, data]` or `[place, mode, data]`.
        if let Some(tuple) = raw_json::elements(chunk) {
            let (place, mode, data) = match &tuple[..] {
                [mode, data] => (None, *mode, *data),
                [place, mode, data] => (Some(*place), *mode, *data),
                _ => return,
            };
            let Some(mode) = raw_json::string(mode, &mut self.tally).and_then(|mode| Mode::parse(&mode))
            else {
                return;
            };
            let ns = raw_json::strings(place, &mut self.tally).join("|");
            return self.mode(mode, &ns, data, frame, out);
        }
        if self.run.is_graph {
            self.mode(Mode::Updates, "", chunk, frame, out);
        }
    }

    fn chain_end(&mut self, run: &str, data: &Data<'_>, out: &mut Vec<Event>) {
        if let Some(id) = self.chains.shift_remove(run) {
            out.push(Event::new(Body::ReasoningEnd { message: id }));
        }
        let Some(node) = self.nodes.get(run) else { return };
        let ns = node.ns.clone();
        let hidden = node.hidden;
        self.finish_lanes_at(&ns, out);
        self.finish_lanes_in(run, out);
        if let Some(output) = data.output
            && hidden
        {
            self.hide_returned(output);
        } else if let Some(output) = data.output {
            let owner = self.nodes.owner(cx!(self, out), &ns, None);
            self.returned(output, &ns, owner.as_ref(), out);
        }
        self.fail_calls(Some(run), out);
        self.nodes.finish(cx!(self, out), run);
    }

    fn think_chain(&mut self, run: &str, name: &str, out: &mut Vec<Event>) {
        if self.chains.len() >= MAX_CHAINS || self.chains.contains_key(run) {
            return self.tally.note("too many chains", name);
        }
        let id = MessageId::from(format!("chain-{run}"));
        self.chains.insert(run.into(), id.clone());
        out.push(Event::new(Body::ReasoningStart { message: id, title: Some(name.into()) }));
    }

    /// Every chain that is still shown as thinking is over.
    pub(super) fn finish_chains(&mut self, out: &mut Vec<Event>) {
        let chains: IndexMap<Box<str>, MessageId> = std::mem::take(&mut self.chains);
        for (_, message) in chains.into_iter().rev() {
            out.push(Event::new(Body::ReasoningEnd { message }));
        }
    }

    // --- tools ------------------------------------------------------------------------------------------

    /// The name of the runnable: on the event, or in its data, as some bridges have it.
    fn name(&mut self, native: &Native<'_>, data: &Data<'_>) -> Box<str> {
        let name = raw_json::filled(native.name, &mut self.tally)
            .or_else(|| raw_json::filled(data.name, &mut self.tally));
        name.unwrap_or_default().into()
    }

    fn tool_start(&mut self, run: &str, native: &Native<'_>, data: &Data<'_>, out: &mut Vec<Event>) {
        let name = self.name(native, data);
        let parents = raw_json::strings(native.parent_ids, &mut self.tally);
        let node = parents.iter().rev().find(|parent| self.nodes.is_running(parent));
        let node: Option<Box<str>> = node.map(|node| node.as_ref().into());
        if let Some(node) = &node
            && self.settings.steps == Steps::Tools
        {
            self.nodes.show(cx!(self, out), node);
        }
        if self.calls.of_run(run).is_some() {
            // An agent action has announced it.
            return;
        }
        let given: Vec<ToolCallId> = node
            .as_ref()
            .and_then(|node| self.nodes.get(node))
            .map(|node| node.given.clone())
            .unwrap_or_default();
        let mut call = self.calls.take(&name, data.input, &given);
        let asked = node.as_ref().and_then(|node| self.nodes.get(node)).and_then(|node| node.asked.clone());
        if call.is_none()
            && let Some((_, message)) =
                asked.as_deref().and_then(|raw| wire::Message::read(raw, &mut self.tally))
        {
            self.returned_earlier(&message, native, out);
            call = self.calls.take(&name, data.input, &given);
        }
        let call = match call {
            Some(call) => call,
            None => self.unannounced(run.into(), &name, native, data.input, out),
        };
        // A node inside another may be given a call alone; the conversation then does not have it.
        let unheard = self.calls.get(&call).is_some_and(|call| !call.shown);
        if unheard && !outer(&self.place(native)).is_empty() && self.client.holder(&call).is_none() {
            self.unannounced(call.clone(), &name, native, data.input, out);
        }
        self.calls.begin(run, &call, node.as_deref());
    }

    /// An answer of an earlier run, whose tools run now.
    fn returned_earlier(&mut self, message: &wire::Message<'_>, native: &Native<'_>, out: &mut Vec<Event>) {
        let ns = self.place(native);
        if self.is_hidden(native) {
            return;
        }
        if let Some(id) = message.id(&mut self.tally) {
            self.run.paid(&id);
        }
        let owner = self.nodes.owner(cx!(self, out), &ns, None);
        self.returned_answer(message, &ns, owner.as_ref(), out);
    }

    /// Where an event happens.
    fn place(&mut self, native: &Native<'_>) -> Box<str> {
        let meta = native.metadata.and_then(Meta::of).unwrap_or_default();
        raw_json::filled(meta.ns.or(meta.inner_ns), &mut self.tally).unwrap_or_default().into()
    }

    /// A tool that no model asked for: code called it, or the stream began later.
    fn unannounced(
        &mut self,
        id: ToolCallId,
        name: &str,
        native: &Native<'_>,
        input: Option<&RawValue>,
        out: &mut Vec<Event>,
    ) -> ToolCallId {
        let args = messages::arguments(input, &mut self.tally);
        let hidden = self.is_hidden(native);
        let ns = self.place(native);
        let owner = if hidden { None } else { self.nodes.owner(cx!(self, out), &ns, None) };
        tool_calls::whole(cx!(self, out), &id, name, &args, None, owner.as_ref(), hidden);
        id
    }

    fn agent_action(&mut self, run: &str, native: &Native<'_>, data: &Data<'_>, out: &mut Vec<Event>) {
        let action = data.action.or(native.data).and_then(Call::of).unwrap_or_default();
        let Some(name) = raw_json::filled(action.tool.or(action.name), &mut self.tally) else {
            return self.tally.note("wrong type", "on_agent_action data.action");
        };
        // An agent's own run announces all of its actions.
        let mut id = run.to_owned();
        let mut number = 2;
        while self.calls.get(&id).is_some() {
            id = format!("{run}-{number}");
            number += 1;
        }
        let call =
            self.unannounced(id.as_str().into(), &name, native, action.tool_input.or(action.args), out);
        // Another run may execute it; if the same one does, it is found by its id.
        if native.run_id.is_some() {
            self.calls.begin(&id, &call, None);
            self.calls.release(&call);
        }
    }

    /// The call that the run of a tool works on.
    fn tool_call(
        &mut self,
        run: &str,
        native: &Native<'_>,
        data: &Data<'_>,
        out: &mut Vec<Event>,
    ) -> Option<ToolCallId> {
        if let Some(call) = self.calls.of_run(run) {
            return Some(call.clone());
        }
        let place = self.place(native);
        // The start was not seen.
        if let Some(id) = raw_json::filled(data.tool_call_id, &mut self.tally) {
            return Some(self.client.call_at(&id, outer(&place)));
        }
        let answered = data.output.map(node_output::messages).unwrap_or_default();
        for raw in answered {
            if let Some((_, message)) = wire::Message::read(raw, &mut self.tally)
                && let Some(id) = raw_json::filled(message.tool_call_id, &mut self.tally)
            {
                return Some(self.client.call_at(&id, outer(&place)));
            }
        }
        let name = self.name(native, data);
        if name.is_empty() && data.output.is_none() {
            // Neither what ran nor what came of it.
            return None;
        }
        let call = match self.calls.take(&name, data.input, &[]) {
            Some(call) => call,
            None => self.unannounced(run.into(), &name, native, data.input, out),
        };
        self.calls.begin(run, &call, None);
        Some(call)
    }

    fn tool_end(&mut self, run: &str, native: &Native<'_>, data: &Data<'_>, out: &mut Vec<Event>) {
        if let Some(call) = self.tool_call(run, native, data, out) {
            let place = self.place(native);
            tool_calls::answer_output(cx!(self, out), &call, data.output, outer(&place));
        }
    }

    fn tool_error(&mut self, run: &str, native: &Native<'_>, data: &Data<'_>, out: &mut Vec<Event>) {
        let known = self.calls.of_run(run).is_some();
        let Some(mut call) = self.tool_call(run, native, data, out) else { return };
        if known && let Some(id) = raw_json::filled(data.tool_call_id, &mut self.tally) {
            let place = self.place(native);
            let named = self.client.call_at(&id, outer(&place));
            if self.calls.get(&named).is_some() {
                self.calls.correct(run, &named);
                call = named;
            } else {
                self.client.alias_call(&id, &call, outer(&place));
            }
        }
        let (class, message) = failure(data.error, &mut self.tally);
        let bubble = BUBBLES
            .iter()
            .any(|bubble| class.as_deref() == Some(*bubble) || message.starts_with(&format!("{bubble}(")));
        if bubble {
            self.calls.interrupt(&call, &message);
        } else {
            self.calls.fail(&call, &message);
        }
    }

    /// Turns failures of tools that nobody has put into words into results.
    pub(super) fn fail_calls(&mut self, node: Option<&str>, out: &mut Vec<Event>) {
        for (call, message) in self.calls.failures(node) {
            tool_calls::answer(cx!(self, out), &call, Answer::failure(&message));
        }
    }

    /// A runnable failed that is no tool. The run may survive it; if it does not, this is why.
    fn runnable_failed(&mut self, run: &str, data: &Data<'_>, out: &mut Vec<Event>) {
        let (class, message) = failure(data.error, &mut self.tally);
        self.run.suspect(class, message);
        self.finish_lane(run, out);
        if let Some(id) = self.chains.shift_remove(run) {
            out.push(Event::new(Body::ReasoningEnd { message: id }));
        }
        self.fail_calls(Some(run), out);
        self.nodes.finish(cx!(self, out), run);
    }
}

/// A member of the first generation in `{"generations": [[{…}]]}`.
fn generation<'a>(output: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let generations = raw_json::elements(member(output, "generations")?)?;
    let first = *generations.first()?;
    let first = raw_json::elements(first).and_then(|list| list.first().copied()).unwrap_or(first);
    member(first, name)
}

/// A member of an object.
pub(super) fn member<'a>(raw: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let members = raw_json::members(raw)?;
    let found = members.into_iter().rev().find(|(key, _)| key == name);
    found.map(|(_, value)| value).filter(|value| value.get() != "null")
}

impl EventName {
    /// Whether this says that a runnable came to its end.
    pub(super) fn is_end(self) -> bool {
        matches!(
            self,
            Self::ChatModelEnd
                | Self::LlmEnd
                | Self::ChainEnd
                | Self::ToolEnd
                | Self::RetrieverEnd
                | Self::PromptEnd
                | Self::ParserEnd
                | Self::NodeEnd
        )
    }

    /// Whether this says that a runnable failed. A failing tool is not among them: the graph goes on.
    pub(super) fn is_failure(self) -> bool {
        matches!(
            self,
            Self::ChatModelError | Self::LlmError | Self::ChainError | Self::RetrieverError | Self::NodeError
        )
    }
}
