//! Native events: `astream_events` version 2, and the event names of other bridges.

mod chains;
mod models;
mod tools;

use std::borrow::Cow;

use super::{
    super::{
        raw_json,
        wire::{EventData, EventMetadata, EventName, NativeFrame},
    },
    LangGraphReader, cx,
    ending::read_error,
};
use crate::{
    event::Event,
    json::{Json, Object},
};

/// LangGraph's tag for models whose output is not streamed.
const NOSTREAM_TAG: &str = "nostream";

impl LangGraphReader {
    /// Reads one native event. `is_framed`: the server sent it; it closes the stream after the last one.
    pub(super) fn read_event(
        &mut self,
        name: EventName,
        native: &NativeFrame<'_>,
        frame: &str,
        is_framed: bool,
        out: &mut Vec<Event>,
    ) {
        let data = native.data.and_then(EventData::of).unwrap_or_default();
        let run = match raw_json::non_empty(native.run_id, &mut self.tally) {
            Some(run) => run,
            None => {
                let runnable = self.runnable_name(native, &data);
                Cow::Owned(self.generated_run_ids.run_id(name, &runnable).into())
            }
        };
        if !self.belongs_to_run(name, &run, native, out) {
            return;
        }
        self.shown.has_early_results = true;
        self.run.input.has_events = true;
        if native.data.is_none_or(|data| !raw_json::is_object(data)) && name != EventName::CustomEvent {
            self.tally.note("wrong type", &format!("{} data", name.as_str()));
        }
        match name {
            _ if name.is_of_model() && self.is_unstreamed(native) => self.unstreamed_model(name, &data),
            EventName::ChatModelStream => self.model_chunk(&run, native, &data, frame, out),
            EventName::ChatModelStart | EventName::LlmStart => self.open_model_stream(&run, native, out),
            EventName::ChatModelEnd => self.model_end(&run, native, &data, out),
            EventName::LlmStream => self.llm_stream(&run, native, &data, out),
            EventName::LlmEnd => self.llm_end(&run, native, &data, out),
            EventName::ChainStart | EventName::NodeStart => self.chain_start(name, &run, native, &data, out),
            EventName::ChainStream | EventName::NodeStream => self.chain_chunk(&run, &data, frame, out),
            EventName::ChainEnd | EventName::NodeEnd => self.chain_end(&run, &data, out),
            EventName::ToolStart => self.tool_start(&run, native, &data, out),
            EventName::ToolStream => self.tool_chunk(&run, native, &data, out),
            EventName::ToolEnd => self.tool_end(&run, native, &data, out),
            EventName::ToolError => self.tool_error(&run, native, &data, out),
            EventName::AgentAction => self.agent_action(&run, native, &data, out),
            EventName::CustomEvent => self.custom_event(&run, native, out),
            _ if name.is_error() => self.runnable_failed(&run, &data, out),
            _ => {}
        }
        if name.is_end() && self.run.is_root(&run) {
            self.root_end(name, data.output, out);
            if !is_framed {
                self.finish_run(out);
            }
        } else if name.is_error() && self.run.is_root(&run) {
            let error = data.error.or(native.data);
            self.run_failed(error, out);
        }
    }

    /// Whether an event belongs to this run; the first one starts the run.
    fn belongs_to_run(
        &mut self,
        name: EventName,
        run: &str,
        native: &NativeFrame<'_>,
        out: &mut Vec<Event>,
    ) -> bool {
        let parents = raw_json::strings(native.parent_ids, &mut self.tally);
        let root: &str = parents.first().map_or(run, |root| root);
        if let Some(current) = self.run.root() {
            let is_foreign = match parents.first() {
                Some(root) => **root != *current,
                // Old versions omit the parents. Then only a chain that is not a node can be another root.
                None => {
                    run != current
                        && native.parent_ids.is_some()
                        && name == EventName::ChainStart
                        && native.metadata.and_then(EventMetadata::of).is_none_or(|meta| meta.node.is_none())
                }
            };
            if is_foreign && self.run.is_over() {
                self.next_run();
            } else if is_foreign {
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
        // Without parents the root is not reported; if the first event is a chain, that is the root.
        let has_root = native.parent_ids.is_some() || name == EventName::ChainStart && !self.run.is_active();
        if self.run.root().is_none() && has_root {
            self.run.set_root(root);
        }
        if !self.run.is_active() {
            let meta = native.metadata.and_then(EventMetadata::of).unwrap_or_default();
            let integration = raw_json::non_empty(meta.integration, &mut self.tally);
            self.run.input.is_graph |=
                meta.node.is_some() || integration.is_some_and(|name| name == "langgraph");
            let thread = raw_json::non_empty(meta.thread_id, &mut self.tally);
            let has_run_id =
                !parents.is_empty() || raw_json::non_empty(native.run_id, &mut self.tally).is_some();
            let known_root = (has_root && has_run_id).then_some(root);
            self.start_run(thread.as_deref(), known_root, out);
            if self.options.run_metadata
                && root == run
                && let Some(started) = out.last_mut()
            {
                let metadata = self.shown_metadata(native, None);
                *started = started.clone().with_metadata(metadata);
            }
        }
        true
    }

    /// The name and metadata of a graph or a node, and the run id of a node.
    fn shown_metadata(&mut self, native: &NativeFrame<'_>, run: Option<&str>) -> Option<Object> {
        let name = raw_json::non_empty(native.name, &mut self.tally);
        let metadata =
            native.metadata.map(|raw| raw_json::json(raw, &mut self.tally)).and_then(Json::into_object);
        let ids = [("name", name.as_deref()), ("node_id", run)];
        let ids = ids.into_iter().filter_map(|(key, text)| Some((key, Json::string(text?))));
        let ids = Object::from_entries(ids);
        Some(metadata.map_or(ids.clone(), |metadata| ids.merged(&metadata))).filter(|all| !all.is_empty())
    }

    pub(super) fn is_hidden(&mut self, native: &NativeFrame<'_>) -> bool {
        if !self.options.hide_tags.is_empty() {
            let tags = raw_json::strings(native.tags, &mut self.tally);
            if self.options.hides_tags(&tags) {
                return true;
            }
        }
        if self.options.hide_nodes.is_empty() {
            return false;
        }
        let meta = native.metadata.and_then(EventMetadata::of).unwrap_or_default();
        let ns = raw_json::non_empty(meta.ns, &mut self.tally).unwrap_or_default();
        let node = raw_json::non_empty(meta.node, &mut self.tally).unwrap_or_default();
        self.options.hides_node(&ns, &node)
    }

    /// True if a model has LangGraph's tag for models that are not streamed. Its message is shown when a node returns
    /// it, as in the stream modes.
    fn is_unstreamed(&mut self, native: &NativeFrame<'_>) -> bool {
        native.tags.is_some_and(|tags| tags.get().contains(NOSTREAM_TAG))
            && raw_json::strings(native.tags, &mut self.tally).iter().any(|tag| tag == NOSTREAM_TAG)
            && !self.is_hidden(native)
    }

    /// The name of the runnable: on the event or, with some bridges, in its data.
    fn runnable_name(&mut self, native: &NativeFrame<'_>, data: &EventData<'_>) -> Box<str> {
        let name = raw_json::non_empty(native.name, &mut self.tally)
            .or_else(|| raw_json::non_empty(data.name, &mut self.tally));
        name.unwrap_or_default().into()
    }

    /// The namespace of an event.
    fn namespace(&mut self, native: &NativeFrame<'_>) -> Box<str> {
        let meta = native.metadata.and_then(EventMetadata::of).unwrap_or_default();
        raw_json::non_empty(meta.ns.or(meta.inner_ns), &mut self.tally).unwrap_or_default().into()
    }

    /// A runnable other than a tool failed. The run may survive it; otherwise this is its error.
    fn runnable_failed(&mut self, run: &str, data: &EventData<'_>, out: &mut Vec<Event>) {
        let (class, message) = read_error(data.error, &mut self.tally);
        self.run.set_last_error(class, message);
        self.finish_stream(run, out);
        self.finish_chain(run, out);
        self.fail_calls(Some(run), out);
        self.nodes.fail(cx!(self, out), run);
    }
}

impl EventName {
    /// Whether a runnable ended.
    fn is_end(self) -> bool {
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

    /// True if a model reports its output.
    fn is_of_model(self) -> bool {
        matches!(
            self,
            Self::ChatModelStart
                | Self::ChatModelStream
                | Self::ChatModelEnd
                | Self::LlmStart
                | Self::LlmStream
                | Self::LlmEnd
        )
    }

    /// Whether a runnable failed. Tools are excluded: the graph continues after their errors.
    fn is_error(self) -> bool {
        matches!(
            self,
            Self::ChatModelError | Self::LlmError | Self::ChainError | Self::RetrieverError | Self::NodeError
        )
    }
}
