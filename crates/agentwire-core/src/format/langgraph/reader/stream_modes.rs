//! The stream modes of a graph: frames of the server, and tuples of `graph.astream(stream_mode=[…])`.
//!
//! Modes overlap: the same message arrives as chunks, in the update of its node, and in the values after the step.
//! The first report is emitted, later ones are compared with it. If the stream also contains native events, those
//! report messages and nodes, and the modes only add interrupts, exact values and the output of the stream writer.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    super::{
        namespace::{node_of, outer},
        options::StepMode,
        raw_json,
        wire::{
            CheckpointConfig, Configurable, DebugEntry, EventMetadata, EventName, NativeCheckpoint,
            NativeFrame, NativeMessage, NativeTask, StreamMode,
        },
    },
    LangGraphReader, cx,
    ending::read_error,
    messages::{self, ShownIds, is_generated_id},
    model_stream::ModelStream,
    native_message::MessageKind,
    node_runs::NodeRun,
    output_rules::OutputRules,
    run_verdict::RunVerdict,
    tool_calls,
};
use crate::event::{Event, StreamEnd};

impl LangGraphReader {
    /// Reads `[mode, data]`, `[namespace, mode, data]`, or `[message, metadata]` of a single mode.
    pub(super) fn read_tuple(&mut self, raw: &RawValue, frame: &str, out: &mut Vec<Event>) {
        let elements = raw_json::elements(raw).unwrap_or_default();
        match &elements[..] {
            [mode, data] if mode.get().starts_with('"') => {
                let mode = raw_json::string(mode, &mut self.tally).unwrap_or_default();
                self.read_named_mode(&mode, "", data, frame, out);
            }
            [ns, mode, data] if raw_json::is_array(ns) => {
                let ns = raw_json::strings(Some(ns), &mut self.tally).join("|");
                let mode = raw_json::string(mode, &mut self.tally).unwrap_or_default();
                self.read_named_mode(&mode, &ns, data, frame, out);
            }
            [message, meta]
                if raw_json::is_object(meta) && NativeMessage::read(message, &mut self.tally).is_some() =>
            {
                self.read_mode(StreamMode::Messages, "", raw, frame, out);
            }
            [ns, data] if raw_json::is_array(ns) && raw_json::is_array(data) => {
                let ns = raw_json::strings(Some(ns), &mut self.tally).join("|");
                self.read_mode(StreamMode::Messages, &ns, data, frame, out);
            }
            // A complete recording on one line.
            [first, ..] if raw_json::is_object(first) => {
                for element in elements {
                    match NativeFrame::of(element) {
                        Some(native) => self.read_object(&native, element, "array", element.get(), out),
                        None => self.tally.note("unknown frame", "element that is no object"),
                    }
                }
            }
            _ => self.tally.note("unknown frame", "array that is no mode tuple"),
        }
    }

    fn read_named_mode(&mut self, name: &str, ns: &str, data: &RawValue, frame: &str, out: &mut Vec<Event>) {
        match StreamMode::parse(name) {
            Some(mode) => self.read_mode(mode, ns, data, frame, out),
            None => {
                self.start_if_idle(out);
                self.tally.note("unknown stream mode", name);
            }
        }
    }

    /// Reads one frame of a mode, from the graph at `ns`.
    pub(super) fn read_mode(
        &mut self,
        mode: StreamMode,
        ns: &str,
        raw: &RawValue,
        frame: &str,
        out: &mut Vec<Event>,
    ) {
        match mode {
            StreamMode::Metadata => return self.read_metadata(raw, out),
            StreamMode::Error => return self.run_failed(Some(raw), out),
            StreamMode::End => return self.run.input.has_modes = true,
            StreamMode::Events => return self.read_framed_event(raw, frame, out),
            _ => {}
        }
        if self.run.is_over() {
            return self.tally.note("event after the end", mode.as_str());
        }
        match mode {
            StreamMode::Messages | StreamMode::MessagesTuple => {
                return self.read_message_tuple(ns, raw, frame, out);
            }
            StreamMode::State => {
                let native = NativeFrame::of(raw).unwrap_or_default();
                self.start_if_idle(out);
                if let Some(values) = native.values.filter(|values| raw_json::is_object(values)) {
                    self.read_values(values, out);
                }
                let verdict = RunVerdict::of_state(&native, &mut self.tally);
                return self.add_verdict(verdict);
            }
            StreamMode::Run => {
                let native = NativeFrame::of(raw).unwrap_or_default();
                if let Some(verdict) = RunVerdict::of_run(&native, &mut self.tally) {
                    self.add_verdict(verdict);
                }
                return;
            }
            _ => {}
        }
        self.start_if_idle(out);
        self.run.input.has_modes = true;
        self.run.input.is_graph = true;
        match mode {
            StreamMode::Updates => self.read_updates(ns, raw, out),
            StreamMode::Values if !ns.is_empty() => self.finish_step(ns, raw, out),
            StreamMode::Values => {
                self.finish_step(ns, raw, out);
                if let Some(interrupts) = raw_json::member(raw, "__interrupt__") {
                    self.add_interrupts(interrupts, None);
                }
                self.read_values(raw, out);
            }
            StreamMode::Custom if self.options.hides_node(ns, "") => {}
            StreamMode::Custom => self.read_writer_output(raw, out),
            StreamMode::Tasks => self.read_task(ns, raw, out),
            StreamMode::Checkpoints => self.read_checkpoint(ns, raw, out),
            StreamMode::Debug => self.read_debug(ns, raw, out),
            StreamMode::MessagesPartial => self.read_partial_messages(ns, raw, out),
            StreamMode::MessagesComplete => self.read_complete_messages(ns, raw, out),
            StreamMode::MessagesMetadata => self.read_messages_metadata(raw, out),
            _ => {}
        }
    }

    /// Reads the server's first frame and, on the stream of a thread, the last one of each run.
    fn read_metadata(&mut self, raw: &RawValue, out: &mut Vec<Event>) {
        let native = NativeFrame::of(raw).unwrap_or_default();
        let run = raw_json::non_empty(native.run_id, &mut self.tally);
        let status = raw_json::non_empty(native.status, &mut self.tally);
        if status.as_deref() == Some("run_done") {
            self.run.input.has_modes = true;
            return self.stream_closed(&StreamEnd::Closed, out);
        }
        let is_another_run =
            run.is_some() && self.run.native_id.is_some() && run.as_deref() != self.run.native_id.as_deref();
        if self.run.is_over() {
            self.next_run();
        } else if is_another_run && self.run.is_active() {
            self.stream_closed(&StreamEnd::Closed, out);
            self.next_run();
        }
        self.run.native_id = run.map(Into::into);
        self.run.input.has_modes = true;
        // Only later frames may contain the thread id.
        if self.options.given_ids {
            self.start_if_idle(out);
        }
    }

    fn read_framed_event(&mut self, raw: &RawValue, frame: &str, out: &mut Vec<Event>) {
        let native = NativeFrame::of(raw).unwrap_or_default();
        let event = native.event.and_then(|event| raw_json::string(event, &mut self.tally));
        match event.as_deref().map(EventName::parse) {
            Some(Some(EventName::Error)) => self.run_failed(native.data, out),
            Some(Some(name)) => self.read_event(name, &native, frame, true, out),
            _ => {
                self.start_if_idle(out);
                self.tally.note("unknown event", event.as_deref().unwrap_or("events"));
            }
        }
    }

    // --- messages ---------------------------------------------------------------------------------------

    /// Reads `[message or chunk, metadata]`.
    fn read_message_tuple(&mut self, ns: &str, raw: &RawValue, frame: &str, out: &mut Vec<Event>) {
        let elements = raw_json::elements(raw).unwrap_or_default();
        let Some(message) = elements.first() else {
            return self.tally.note("wrong type", "messages");
        };
        let meta = elements.get(1).and_then(|raw| EventMetadata::of(raw)).unwrap_or_default();
        self.read_message(ns, message, &meta, frame, out);
    }

    /// Reads a message or a chunk, from a graph or from a model without one.
    pub(super) fn read_message(
        &mut self,
        ns: &str,
        raw: &RawValue,
        meta: &EventMetadata<'_>,
        frame: &str,
        out: &mut Vec<Event>,
    ) {
        if !self.run.is_active() {
            let thread = raw_json::non_empty(meta.thread_id, &mut self.tally);
            let run = raw_json::non_empty(meta.run_id, &mut self.tally);
            self.start_run(thread.as_deref(), run.as_deref(), out);
        }
        self.run.input.has_modes = true;
        self.run.input.is_graph = true;
        if self.run.input.has_events {
            return;
        }
        let Some((kind, message)) = NativeMessage::read(raw, &mut self.tally) else {
            return self.tally.note("wrong type", "messages");
        };
        let node_ns = raw_json::non_empty(meta.ns.or(meta.inner_ns), &mut self.tally);
        let ns = node_ns.unwrap_or(Cow::Borrowed(ns)).into_owned();
        self.start_nodes_at(&ns, meta, out);
        match kind {
            MessageKind::Ai if is_chunk(&message) => {
                self.read_message_chunk(&ns, raw, &message, meta, frame, out)
            }
            MessageKind::Ai => {
                if self.hides_message(&ns, meta) {
                    return self.hide_returned(raw);
                }
                let owner = self.nodes.subagent_at(cx!(self, out), &ns, None);
                let rules = OutputRules::of(meta, &mut self.tally);
                self.read_returned_message(&message, &ns, owner.as_ref(), rules.as_deref(), out);
            }
            MessageKind::Tool => {
                if self.options.steps == StepMode::Tools {
                    self.nodes.show_step(cx!(self, out), &ns);
                }
                tool_calls::send_result_message(cx!(self, out), &message, None, None, outer(&ns));
            }
            _ => {}
        }
    }

    fn hides_message(&mut self, ns: &str, meta: &EventMetadata<'_>) -> bool {
        let tags = raw_json::strings(meta.tags, &mut self.tally);
        self.options.hides_tags(&tags) || self.options.hides_node(ns, "")
    }

    fn read_message_chunk(
        &mut self,
        ns: &str,
        raw: &RawValue,
        chunk: &NativeMessage<'_>,
        meta: &EventMetadata<'_>,
        frame: &str,
        out: &mut Vec<Event>,
    ) {
        let id = chunk.id(&mut self.tally);
        let mut key = self.stream_key(id.as_deref(), ns, meta, Some(chunk));
        if id.as_deref() == Some(&*key) {
            key = self.unique_key(key, ns);
        }
        if !self.streams.contains_key(&*key) {
            let stream = self.new_stream(&key, ns, meta, out);
            self.add_stream(&key, stream, out);
        }
        let at = self.streams.get_index_of(&*key).expect("the stream was added");
        if self.streams[at].received.is_accumulated {
            return;
        }
        self.streams[at].received.has_positions |= raw.get().contains("\"chunk_position\"");
        self.read_model_chunk(&key, chunk, frame, out);
        if self.streams.get(&*key).is_some_and(|stream| stream.received.is_complete) {
            self.finish_stream(&key, out);
        }
    }

    /// The key of the stream to which a chunk belongs.
    ///
    /// Many providers send the message id only on the first chunk; LangChain then generates ids for the others, or
    /// only for an empty last one. So a generated id continues a message that has a provider's id, and a late
    /// provider's id continues a message that has a generated one, if both are of one model in one namespace.
    fn stream_key(
        &mut self,
        id: Option<&str>,
        ns: &str,
        meta: &EventMetadata<'_>,
        chunk: Option<&NativeMessage<'_>>,
    ) -> String {
        let Some(id) = id else {
            // A chunk without an id continues the latest stream in its namespace.
            let open = self.streams.iter().rev().find(|(_, stream)| *stream.identity.ns == *ns);
            return open.map_or_else(|| format!("{ns}-message"), |(key, _)| key.to_string());
        };
        if self.streams.contains_key(id) {
            return id.into();
        }
        if let Some((key, _)) =
            self.streams.iter().find(|(_, stream)| stream.identity.other_id.as_deref() == Some(id))
        {
            return key.to_string();
        }
        let provider = raw_json::non_empty(meta.provider, &mut self.tally);
        let model = raw_json::non_empty(meta.model, &mut self.tally);
        let is_generated = is_generated_id(id);
        let candidates: Vec<(&str, &ModelStream)> = self
            .streams
            .iter()
            .filter(|(key, stream)| {
                *stream.identity.ns == *ns
                    && stream.identity.other_id.is_none()
                    && is_generated_id(key) != is_generated
                    && (provider.is_none() || stream.identity.provider.as_deref() == provider.as_deref())
                    && (model.is_none() || stream.identity.model.as_deref() == model.as_deref())
            })
            .map(|(key, stream)| (&**key, stream))
            .collect();
        let found = if !is_generated {
            candidates.first()
        } else if chunk.is_some_and(is_empty_chunk) {
            candidates.iter().find(|(_, stream)| stream.has_finish_reason()).or_else(|| candidates.first())
        } else {
            candidates.iter().find(|(_, stream)| stream.received.count <= 1)
        };
        let Some(key) = found.map(|(key, _)| (*key).to_owned()) else { return id.into() };
        if let Some(stream) = self.streams.get_mut(&*key) {
            stream.continue_as(id);
        }
        key
    }

    /// The key of the message `id` in a namespace. Another model may use the same id, concurrently or later: every
    /// model run is a message of its own.
    fn unique_key(&self, id: String, ns: &str) -> String {
        let is_taken = match self.streams.get(&*id) {
            Some(stream) => *stream.identity.ns != *ns && !stream.received.is_accumulated,
            // An id of an earlier run is the same message, which the graph replaces by this one.
            None => {
                self.shown.contains(&self.shown.message_id(&id))
                    && !self.run.conversation.history.contains(&*id)
            }
        };
        if !is_taken {
            return id;
        }
        let is_same = |stream: &ModelStream| stream.native_id() == Some(&*id) && *stream.identity.ns == *ns;
        if let Some((key, _)) = self.streams.iter().find(|(_, stream)| is_same(stream)) {
            return key.to_string();
        }
        let is_free = |key: &String| !self.streams.contains_key(&**key) && !self.shown.contains(key);
        let key = (2..=u32::MAX).map(|number| format!("{id}#{number}")).find(is_free);
        key.unwrap_or(id)
    }

    fn new_stream(
        &mut self,
        id: &str,
        ns: &str,
        meta: &EventMetadata<'_>,
        out: &mut Vec<Event>,
    ) -> ModelStream {
        let agent = raw_json::non_empty(meta.agent, &mut self.tally);
        let mut stream = ModelStream::new(id, ns);
        stream.identity.provider = raw_json::non_empty(meta.provider, &mut self.tally).map(Into::into);
        stream.identity.model = raw_json::non_empty(meta.model, &mut self.tally).map(Into::into);
        stream.identity.is_hidden = self.hides_message(ns, meta);
        stream.identity.rules = OutputRules::of(meta, &mut self.tally);
        if !stream.identity.is_hidden {
            stream.identity.owner = self.nodes.subagent_at(cx!(self, out), ns, agent.as_deref());
        }
        stream
    }

    /// Reads messages that every frame repeats from their start.
    fn read_partial_messages(&mut self, ns: &str, raw: &RawValue, out: &mut Vec<Event>) {
        if self.run.input.has_events {
            return;
        }
        for raw in messages::one_or_many(raw) {
            let Some((MessageKind::Ai, message)) = NativeMessage::read(raw, &mut self.tally) else {
                continue;
            };
            let Some(id) = message.id(&mut self.tally) else { continue };
            let key = self.stream_key(Some(&id), ns, &EventMetadata::default(), Some(&message));
            match self.streams.get(&*key) {
                Some(stream) if stream.is_shown() && !stream.received.is_accumulated => continue,
                None if self.shown.contains(&self.shown.message_id(&id)) => continue,
                _ => {}
            }
            if *key != *id && is_empty_chunk(&message) {
                continue;
            }
            if !self.streams.contains_key(&*key) {
                let stream = self.new_stream(&key, ns, &EventMetadata::default(), out);
                self.add_stream(&key, stream, out);
            }
            let at = self.streams.get_index_of(&*key).expect("the stream was added");
            self.streams[at].received.is_accumulated = true;
            self.streams[at].read_accumulated(raw, &message, cx!(self, out));
        }
    }

    fn read_complete_messages(&mut self, ns: &str, raw: &RawValue, out: &mut Vec<Event>) {
        if !self.run.input.has_events {
            let owner = self.nodes.subagent_at(cx!(self, out), ns, None);
            self.read_returned_messages(raw, ns, owner.as_ref(), None, out);
        }
    }

    /// Reads `{ID: {"metadata": {…}}}`: the model of a message, once before its content.
    fn read_messages_metadata(&mut self, raw: &RawValue, out: &mut Vec<Event>) {
        if self.run.input.has_events {
            return;
        }
        for (id, entry) in raw_json::members(raw).unwrap_or_default() {
            let Some(meta) = raw_json::member(entry, "metadata").and_then(EventMetadata::of) else {
                continue;
            };
            let ns = raw_json::non_empty(meta.ns.or(meta.inner_ns), &mut self.tally)
                .unwrap_or_default()
                .into_owned();
            self.start_nodes_at(&ns, &meta, out);
            if self.shown.contains(&self.shown.message_id(&id))
                || self.streams.contains_key(&*id)
                || meta.model.is_none()
                || self.stream_key(Some(&id), &ns, &meta, None) != *id
            {
                continue;
            }
            let stream = self.new_stream(&id, &ns, &meta, out);
            self.add_stream(&id, stream, out);
        }
    }

    // --- nodes ------------------------------------------------------------------------------------------

    /// Starts the nodes of all levels of `ns`, at which an event was reported.
    fn start_nodes_at(&mut self, ns: &str, meta: &EventMetadata<'_>, out: &mut Vec<Event>) {
        if ns.is_empty() || self.run.input.has_events || self.run.input.has_tasks || self.nodes.is_running(ns)
        {
            return;
        }
        let superstep = raw_json::integer(meta.step);
        if let Some(superstep) = superstep {
            for earlier in self.nodes.of_earlier_supersteps(ns, superstep) {
                self.finish_streams_at(&earlier, out);
                self.nodes.finish(cx!(self, out), &earlier);
            }
        }
        let ends = ns.match_indices('|').map(|(at, _)| at).chain([ns.len()]);
        for end in ends.collect::<Vec<_>>() {
            let outer = &ns[..end];
            let segment = outer.rsplit('|').next().unwrap_or(outer);
            if self.nodes.is_running(outer) || !segment.contains(':') {
                continue;
            }
            let mut node = NodeRun::new(node_of(segment), outer);
            node.superstep = superstep.filter(|_| end == ns.len());
            node.is_hidden = self.options.hides_node(outer, "");
            self.nodes.start(cx!(self, out), outer, node);
        }
    }

    /// Reads `{NODE: update}` or `{"__interrupt__": […]}`.
    pub(super) fn read_updates(&mut self, ns: &str, raw: &RawValue, out: &mut Vec<Event>) {
        let Some(members) = raw_json::members(raw) else {
            return self.tally.note("wrong type", "updates");
        };
        for (name, update) in members {
            if name == "__interrupt__" {
                self.add_interrupts(update, None);
            } else if !name.starts_with("__") {
                self.read_update(ns, &name, update, out);
            }
        }
    }

    pub(super) fn read_update(&mut self, ns: &str, name: &str, update: &RawValue, out: &mut Vec<Event>) {
        let shows_steps = !self.run.input.has_events && !self.run.input.has_tasks;
        let mut key = None;
        if shows_steps {
            let found = self.nodes.find(ns, name);
            let found = found.unwrap_or_else(|| {
                // The node was not reported before: its step starts and ends here.
                let node_ns: Box<str> = match ns {
                    "" => format!("{name}:").into(),
                    ns => format!("{ns}|{name}:").into(),
                };
                let mut node = NodeRun::new(name, &node_ns);
                node.is_hidden = self.options.hides_node(&node_ns, name);
                self.nodes.start(cx!(self, out), &node_ns, node);
                node_ns
            });
            key = Some(found);
        }
        let node_ns = key.as_ref().and_then(|key| self.nodes.get(key)).map(|node| node.ns.clone());
        let node_ns = node_ns.unwrap_or_else(|| ns.into());
        if self.options.hides_node(&node_ns, name) {
            self.hide_returned(update);
        } else {
            let owner =
                if ns.is_empty() { None } else { self.nodes.subagent_at(cx!(self, out), &node_ns, None) };
            self.read_returned_messages(update, &node_ns, owner.as_ref(), None, out);
        }
        if let Some(key) = key {
            self.finish_streams_at(&node_ns, out);
            self.nodes.finish(cx!(self, out), &key);
        }
    }

    /// Reads the start (`input`, `triggers`) or the end (`result`, `error`, `interrupts`) of a task.
    fn read_task(&mut self, ns: &str, raw: &RawValue, out: &mut Vec<Event>) {
        let (Some(task), Some(members)) = (NativeTask::of(raw), raw_json::members(raw)) else {
            return self.tally.note("wrong type", "tasks");
        };
        let name = raw_json::non_empty(task.name, &mut self.tally).unwrap_or_default();
        let id = raw_json::non_empty(task.id, &mut self.tally).unwrap_or_default();
        let task_ns = if ns.is_empty() { format!("{name}:{id}") } else { format!("{ns}|{name}:{id}") };
        let is_start = members.iter().any(|(key, _)| key == "triggers" || key == "input");
        let is_pushed = raw_json::strings(task.triggers, &mut self.tally)
            .iter()
            .any(|trigger| trigger == "__pregel_push");
        if self.run.input.has_events {
            if let Some(interrupts) = task.interrupts.filter(|raw| raw.get() != "[]") {
                self.add_interrupts(interrupts, None);
            }
            return;
        }
        self.run.input.has_tasks = true;
        if is_start {
            // `tasks` and `debug` report the same task.
            if self.nodes.is_running(&task_ns) {
                return;
            }
            // A task that another task pushed is not a new step of the graph.
            if !is_pushed {
                self.close_stale_nodes(ns, out);
            }
            let mut node = NodeRun::new(&name, &task_ns);
            node.is_hidden = self.options.hides_node(&task_ns, &name);
            node.assigned_calls = task.input.map(|input| self.assigned_calls(input, ns)).unwrap_or_default();
            return self.nodes.start(cx!(self, out), &task_ns, node);
        }
        if let Some(interrupts) = task.interrupts.filter(|raw| raw.get() != "[]") {
            // A task with one tool call was interrupted by that call.
            let assigned =
                self.nodes.get(&task_ns).map(|node| node.assigned_calls.clone()).unwrap_or_default();
            let call = if let [only] = &assigned[..] { Some(only) } else { None };
            self.add_interrupts(interrupts, call);
        }
        let mut has_failed = false;
        if let Some(error) = task.error {
            let (class, message) = read_error(Some(error), &mut self.tally);
            if !matches!(class.as_deref(), Some("GraphInterrupt" | "NodeInterrupt")) {
                self.run.set_last_error(class, message);
                has_failed = true;
            }
        }
        if let Some(result) = task.result
            && self.options.hides_node(&task_ns, &name)
        {
            self.hide_returned(result);
        } else if let Some(result) = task.result {
            let owner = self.nodes.subagent_at(cx!(self, out), &task_ns, None);
            self.read_returned_messages(result, &task_ns, owner.as_ref(), None, out);
        }
        self.finish_streams_at(&task_ns, out);
        if has_failed {
            self.nodes.fail(cx!(self, out), &task_ns);
        } else {
            self.nodes.finish(cx!(self, out), &task_ns);
        }
        self.nodes.task_ended(ns);
    }

    /// Closes the tasks of the graph at `ns` that have not ended when its next step starts: they ended before this
    /// run, which resumes after an interrupt, or their errors were ignored.
    fn close_stale_nodes(&mut self, ns: &str, out: &mut Vec<Event>) {
        for stale in self.nodes.next_step(ns) {
            self.finish_streams_at(&stale, out);
            self.nodes.finish(cx!(self, out), &stale);
        }
    }

    /// Ends the step of the graph at `ns`: its values arrive after all tasks of the step.
    fn finish_step(&mut self, ns: &str, values: &RawValue, out: &mut Vec<Event>) {
        // With an interrupt, values arrive after the first interrupted task.
        if raw_json::member(values, "__interrupt__").is_some() || self.run.has_interrupts() {
            return;
        }
        self.close_stale_nodes(ns, out);
        if !self.run.input.has_events {
            self.finish_streams_within(ns, out);
        }
    }

    fn read_checkpoint(&mut self, ns: &str, raw: &RawValue, out: &mut Vec<Event>) {
        self.close_stale_nodes(ns, out);
        let checkpoint = NativeCheckpoint::of(raw).unwrap_or_default();
        let config = checkpoint.config.and_then(CheckpointConfig::of).and_then(|config| config.configurable);
        let inner = config.and_then(Configurable::of).and_then(|config| config.checkpoint_ns);
        let inner = raw_json::non_empty(inner, &mut self.tally);
        if ns.is_empty()
            && inner.is_none()
            && let Some(values) = checkpoint.values
        {
            self.read_values(values, out);
            self.run.ending.next_nodes =
                raw_json::strings(checkpoint.next, &mut self.tally).into_iter().map(Into::into).collect();
        }
    }

    fn read_debug(&mut self, ns: &str, raw: &RawValue, out: &mut Vec<Event>) {
        let entry = DebugEntry::of(raw).unwrap_or_default();
        let kind = raw_json::non_empty(entry.kind, &mut self.tally);
        match (kind.as_deref(), entry.payload) {
            (Some("task" | "task_result"), Some(task)) => self.read_task(ns, task, out),
            (Some("checkpoint"), Some(checkpoint)) => self.read_checkpoint(ns, checkpoint, out),
            (kind, _) => self.tally.note("unknown debug entry", kind.unwrap_or_default()),
        }
    }
}

/// Whether a chunk has no content, as one that only marks the end.
fn is_empty_chunk(chunk: &NativeMessage<'_>) -> bool {
    let is_empty = |raw: Option<&RawValue>| raw.is_none_or(|raw| matches!(raw.get(), "\"\"" | "[]" | "{}"));
    is_empty(chunk.content)
        && is_empty(chunk.tool_call_chunks)
        && is_empty(chunk.tool_calls)
        && is_empty(chunk.invalid_tool_calls)
        && is_empty(chunk.additional_kwargs)
        && is_empty(chunk.usage_metadata)
}

/// Whether a message is a chunk.
fn is_chunk(message: &NativeMessage<'_>) -> bool {
    message.tool_call_chunks.is_some() || message.kind.is_some_and(|kind| kind.get().ends_with("Chunk\""))
}
