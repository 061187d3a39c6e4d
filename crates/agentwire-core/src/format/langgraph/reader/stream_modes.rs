//! The stream modes of a graph: frames of the server, and tuples of `graph.astream(stream_mode=[…])`.
//!
//! Modes overlap: the same message comes as chunks, in the update of its node, and in the values after the
//! step. Whoever says a thing first is believed, the others are compared. Where native events are in the same
//! stream, they tell of messages and nodes, and the modes only add what events lack: interrupts, exact values,
//! and the output of the stream writer.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    super::{
        namespace::{node_of, outer},
        options::Steps,
        raw_json,
        wire::{self, Checkpoint, Config, Configurable, Debug, EventName, Meta, Mode, Native, Task},
    },
    LangGraphReader, cx,
    messages::{self, Kind, Naming, is_stand_in},
    model_stream::Lane,
    native_events::member,
    node_runs::Node,
    run::failure,
    thread_state::Verdict,
    tool_calls,
};
use crate::event::Event;

impl LangGraphReader {
    /// `[mode, data]`, `[place, mode, data]`, or `[message, metadata]` of a single mode.
    pub(super) fn tuple(&mut self, raw: &RawValue, frame: &str, out: &mut Vec<Event>) {
        let elements = raw_json::elements(raw).unwrap_or_default();
        match &elements[..] {
            [mode, data] if mode.get().starts_with('"') => {
                let mode = raw_json::string(mode, &mut self.tally).unwrap_or_default();
                self.named_mode(&mode, "", data, frame, out);
            }
            [place, mode, data] if raw_json::is_array(place) => {
                let ns = raw_json::strings(Some(place), &mut self.tally).join("|");
                let mode = raw_json::string(mode, &mut self.tally).unwrap_or_default();
                self.named_mode(&mode, &ns, data, frame, out);
            }
            [message, meta]
                if raw_json::is_object(meta) && wire::Message::read(message, &mut self.tally).is_some() =>
            {
                self.mode(Mode::Messages, "", raw, frame, out);
            }
            [place, data] if raw_json::is_array(place) && raw_json::is_array(data) => {
                let ns = raw_json::strings(Some(place), &mut self.tally).join("|");
                self.mode(Mode::Messages, &ns, data, frame, out);
            }
            // A whole recording on one line.
            [first, ..] if raw_json::is_object(first) => {
                for element in elements {
                    match Native::of(element) {
                        Some(native) => self.object(&native, element, "array", element.get(), out),
                        None => self.tally.note("unknown frame", "element that is no object"),
                    }
                }
            }
            _ => self.tally.note("unknown frame", "array that is no mode tuple"),
        }
    }

    fn named_mode(&mut self, name: &str, ns: &str, data: &RawValue, frame: &str, out: &mut Vec<Event>) {
        match Mode::parse(name) {
            Some(mode) => self.mode(mode, ns, data, frame, out),
            None => {
                self.begin_if_idle(out);
                self.tally.note("unknown stream mode", name);
            }
        }
    }

    /// One frame of a mode. `ns`: the place of the nested graph it comes from.
    pub(super) fn mode(&mut self, mode: Mode, ns: &str, raw: &RawValue, frame: &str, out: &mut Vec<Event>) {
        match mode {
            Mode::Metadata => return self.metadata(raw, out),
            Mode::Error => return self.failed(Some(raw), out),
            Mode::End => return self.run.has_modes = true,
            Mode::Events => return self.framed_event(raw, frame, out),
            _ => {}
        }
        if self.run.is_over() {
            return self.tally.note("event after the end", mode.as_str());
        }
        match mode {
            Mode::Messages | Mode::MessagesTuple => return self.message_tuple(ns, raw, frame, out),
            Mode::State => {
                let native = Native::of(raw).unwrap_or_default();
                self.begin_if_idle(out);
                if let Some(values) = native.values.filter(|values| raw_json::is_object(values)) {
                    self.values(values, out);
                }
                let verdict = Verdict::of_state(&native, &mut self.tally);
                return self.judge(verdict);
            }
            Mode::Run => {
                let native = Native::of(raw).unwrap_or_default();
                if let Some(verdict) = Verdict::of_run(&native, &mut self.tally) {
                    self.judge(verdict);
                }
                return;
            }
            _ => {}
        }
        self.begin_if_idle(out);
        self.run.has_modes = true;
        self.run.is_graph = true;
        match mode {
            Mode::Updates => self.updates(ns, raw, out),
            Mode::Values if !ns.is_empty() => self.step_is_over(ns, raw, out),
            Mode::Values => {
                self.step_is_over(ns, raw, out);
                if let Some(interrupts) = member(raw, "__interrupt__") {
                    self.interrupts(interrupts, None);
                }
                self.values(raw, out);
            }
            Mode::Custom if self.settings.hides_node(ns, "") => {}
            Mode::Custom => self.written(raw, out),
            Mode::Tasks => self.task(ns, raw, out),
            Mode::Checkpoints => self.checkpoint(ns, raw, out),
            Mode::Debug => self.debug(ns, raw, out),
            Mode::MessagesPartial => self.partial(ns, raw, out),
            Mode::MessagesComplete => self.complete_messages(ns, raw, out),
            Mode::MessagesMetadata => self.messages_metadata(raw, out),
            _ => {}
        }
    }

    /// The server's first frame, and on a thread's stream the last one of each run.
    fn metadata(&mut self, raw: &RawValue, out: &mut Vec<Event>) {
        let native = Native::of(raw).unwrap_or_default();
        let run = raw_json::filled(native.run_id, &mut self.tally);
        let status = raw_json::filled(native.status, &mut self.tally);
        if status.as_deref() == Some("run_done") {
            self.run.has_modes = true;
            return self.closed(&crate::event::StreamEnd::Closed, out);
        }
        let another =
            run.is_some() && self.run.native.is_some() && run.as_deref() != self.run.native.as_deref();
        if self.run.is_over() {
            self.next_run();
        } else if another && self.run.is_active() {
            self.closed(&crate::event::StreamEnd::Closed, out);
            self.next_run();
        }
        self.run.native = run.map(Into::into);
        self.run.has_modes = true;
        // The thread is named by what follows, if at all.
        if self.settings.given_ids {
            self.begin_if_idle(out);
        }
    }

    fn framed_event(&mut self, raw: &RawValue, frame: &str, out: &mut Vec<Event>) {
        let native = Native::of(raw).unwrap_or_default();
        let event = native.event.and_then(|event| raw_json::string(event, &mut self.tally));
        match event.as_deref().map(EventName::parse) {
            Some(Some(EventName::Error)) => self.failed(native.data, out),
            Some(Some(name)) => self.event(name, &native, frame, true, out),
            _ => {
                self.begin_if_idle(out);
                self.tally.note("unknown event", event.as_deref().unwrap_or("events"));
            }
        }
    }

    // --- messages ---------------------------------------------------------------------------------------

    /// `[message or chunk, metadata]`.
    fn message_tuple(&mut self, ns: &str, raw: &RawValue, frame: &str, out: &mut Vec<Event>) {
        let elements = raw_json::elements(raw).unwrap_or_default();
        let Some(message) = elements.first() else {
            return self.tally.note("wrong type", "messages");
        };
        let meta = elements.get(1).and_then(|raw| Meta::of(raw)).unwrap_or_default();
        self.message(ns, message, &meta, frame, out);
    }

    /// A message or a chunk of one, as a graph streams it, or a model alone.
    pub(super) fn message(
        &mut self,
        ns: &str,
        raw: &RawValue,
        meta: &Meta<'_>,
        frame: &str,
        out: &mut Vec<Event>,
    ) {
        if !self.run.is_active() {
            let thread = raw_json::filled(meta.thread_id, &mut self.tally);
            let run = raw_json::filled(meta.run_id, &mut self.tally);
            self.begin(thread.as_deref(), run.as_deref(), out);
        }
        self.run.has_modes = true;
        self.run.is_graph = true;
        if self.run.has_events {
            return;
        }
        let Some((kind, message)) = wire::Message::read(raw, &mut self.tally) else {
            return self.tally.note("wrong type", "messages");
        };
        let place = raw_json::filled(meta.ns.or(meta.inner_ns), &mut self.tally);
        let place = place.unwrap_or(Cow::Borrowed(ns)).into_owned();
        self.reach(&place, meta, out);
        match kind {
            Kind::Ai if is_chunk(&message) => self.message_chunk(&place, raw, &message, meta, frame, out),
            Kind::Ai => {
                if self.is_left_out(&place, meta) {
                    return self.hide_returned(raw);
                }
                let owner = self.nodes.owner(cx!(self, out), &place, None);
                self.returned_answer(&message, &place, owner.as_ref(), out);
            }
            Kind::Tool => {
                if self.settings.steps == Steps::Tools {
                    self.nodes.show(cx!(self, out), &place);
                }
                tool_calls::answer_message(cx!(self, out), &message, None, None, outer(&place));
            }
            _ => {}
        }
    }

    fn is_left_out(&mut self, place: &str, meta: &Meta<'_>) -> bool {
        let tags = raw_json::strings(meta.tags, &mut self.tally);
        self.settings.hides_tags(&tags) || self.settings.hides_node(place, "")
    }

    fn message_chunk(
        &mut self,
        place: &str,
        raw: &RawValue,
        chunk: &wire::Message<'_>,
        meta: &Meta<'_>,
        frame: &str,
        out: &mut Vec<Event>,
    ) {
        let id = chunk.id(&mut self.tally);
        let mut key = self.lane_key(id.as_deref(), place, meta, Some(chunk));
        if id.as_deref() == Some(&*key) {
            key = self.apart(key, place);
        }
        if !self.lanes.contains_key(&*key) {
            let lane = self.new_lane(&key, place, meta, out);
            self.lane(&key, || lane, out);
        }
        let at = self.lanes.get_index_of(&*key).expect("the lane was put there");
        if self.lanes[at].accumulated {
            return;
        }
        self.lanes[at].positioned |= raw.get().contains("\"chunk_position\"");
        self.chunk(&key, chunk, frame, out);
        if self.lanes.get(&*key).is_some_and(|lane| lane.last) {
            self.finish_lane(&key, out);
        }
    }

    /// The lane that a chunk belongs to.
    ///
    /// Many providers name a message only on its first chunk, and LangChain puts an id of its own on the others,
    /// or only on an empty last one. So a stand-in for an id goes on with a message that was named once, and a
    /// name that comes late goes on with a message that had a stand-in, if both are of one model at one place.
    fn lane_key(
        &mut self,
        id: Option<&str>,
        place: &str,
        meta: &Meta<'_>,
        chunk: Option<&wire::Message<'_>>,
    ) -> String {
        let Some(id) = id else {
            // A chunk without an id goes on with what streams at its place.
            let open = self.lanes.iter().rev().find(|(_, lane)| *lane.ns == *place);
            return open.map_or_else(|| format!("{place}-message"), |(key, _)| key.to_string());
        };
        if self.lanes.contains_key(id) {
            return id.into();
        }
        if let Some((key, _)) = self.lanes.iter().find(|(_, lane)| lane.other.as_deref() == Some(id)) {
            return key.to_string();
        }
        let provider = raw_json::filled(meta.provider, &mut self.tally);
        let model = raw_json::filled(meta.model, &mut self.tally);
        let stands_in = is_stand_in(id);
        let candidates: Vec<(&str, &Lane)> = self
            .lanes
            .iter()
            .filter(|(key, lane)| {
                *lane.ns == *place
                    && lane.other.is_none()
                    && is_stand_in(key) != stands_in
                    && (provider.is_none() || lane.provider.as_deref() == provider.as_deref())
                    && (model.is_none() || lane.model.as_deref() == model.as_deref())
            })
            .map(|(key, lane)| (&**key, lane))
            .collect();
        let found = if !stands_in {
            candidates.first()
        } else if chunk.is_some_and(says_nothing) {
            candidates.iter().find(|(_, lane)| lane.is_finished()).or_else(|| candidates.first())
        } else {
            candidates.iter().find(|(_, lane)| lane.chunks <= 1)
        };
        let Some(key) = found.map(|(key, _)| (*key).to_owned()) else { return id.into() };
        if let Some(lane) = self.lanes.get_mut(&*key) {
            lane.goes_on_as(id);
        }
        key
    }

    /// The key of the message `id` at a place. Another model may use the same id, at the same time or after this
    /// one: there is one message per model run.
    fn apart(&self, id: String, place: &str) -> String {
        let taken = match self.lanes.get(&*id) {
            Some(lane) => *lane.ns != *place && !lane.accumulated,
            // One of an earlier run is the same message: the graph will put this one in its place.
            None => self.client.has(&self.client.message(&id)) && !self.run.history.contains(&*id),
        };
        if !taken {
            return id;
        }
        let same = |lane: &Lane| lane.native() == Some(&*id) && *lane.ns == *place;
        if let Some((key, _)) = self.lanes.iter().find(|(_, lane)| same(lane)) {
            return key.to_string();
        }
        let free = |key: &String| !self.lanes.contains_key(&**key) && !self.client.has(key);
        let key = (2..=u32::MAX).map(|number| format!("{id}#{number}")).find(free);
        key.unwrap_or(id)
    }

    fn new_lane(&mut self, id: &str, place: &str, meta: &Meta<'_>, out: &mut Vec<Event>) -> Lane {
        let agent = raw_json::filled(meta.agent, &mut self.tally);
        let mut lane = Lane::new(id, place);
        lane.provider = raw_json::filled(meta.provider, &mut self.tally).map(Into::into);
        lane.model = raw_json::filled(meta.model, &mut self.tally).map(Into::into);
        lane.hidden = self.is_left_out(place, meta);
        if !lane.hidden {
            lane.owner = self.nodes.owner(cx!(self, out), place, agent.as_deref());
        }
        lane
    }

    /// Messages that are repeated from their start in every frame.
    fn partial(&mut self, ns: &str, raw: &RawValue, out: &mut Vec<Event>) {
        if self.run.has_events {
            return;
        }
        for raw in messages::list(raw) {
            let Some((Kind::Ai, message)) = wire::Message::read(raw, &mut self.tally) else { continue };
            let Some(id) = message.id(&mut self.tally) else { continue };
            let key = self.lane_key(Some(&id), ns, &Meta::default(), Some(&message));
            match self.lanes.get(&*key) {
                Some(lane) if lane.is_shown() && !lane.accumulated => continue,
                None if self.client.has(&self.client.message(&id)) => continue,
                _ => {}
            }
            if *key != *id && says_nothing(&message) {
                continue;
            }
            if !self.lanes.contains_key(&*key) {
                let lane = self.new_lane(&key, ns, &Meta::default(), out);
                self.lane(&key, || lane, out);
            }
            let at = self.lanes.get_index_of(&*key).expect("the lane was put there");
            self.lanes[at].accumulated = true;
            self.lanes[at].so_far(raw, &message, cx!(self, out));
        }
    }

    fn complete_messages(&mut self, ns: &str, raw: &RawValue, out: &mut Vec<Event>) {
        if !self.run.has_events {
            let owner = self.nodes.owner(cx!(self, out), ns, None);
            self.returned(raw, ns, owner.as_ref(), out);
        }
    }

    /// `{ID: {"metadata": {…}}}`: who speaks, said once before the message.
    fn messages_metadata(&mut self, raw: &RawValue, out: &mut Vec<Event>) {
        if self.run.has_events {
            return;
        }
        for (id, entry) in raw_json::members(raw).unwrap_or_default() {
            let Some(meta) = member(entry, "metadata").and_then(Meta::of) else { continue };
            let place =
                raw_json::filled(meta.ns.or(meta.inner_ns), &mut self.tally).unwrap_or_default().into_owned();
            self.reach(&place, &meta, out);
            if self.client.has(&self.client.message(&id))
                || self.lanes.contains_key(&*id)
                || meta.model.is_none()
                || self.lane_key(Some(&id), &place, &meta, None) != *id
            {
                continue;
            }
            let lane = self.new_lane(&id, &place, &meta, out);
            self.lane(&id, || lane, out);
        }
    }

    // --- nodes ------------------------------------------------------------------------------------------

    /// Something happens at a place: the nodes on the way there have begun.
    fn reach(&mut self, place: &str, meta: &Meta<'_>, out: &mut Vec<Event>) {
        if place.is_empty() || self.run.has_events || self.run.has_tasks || self.nodes.is_running(place) {
            return;
        }
        let number = raw_json::integer(meta.step);
        if let Some(number) = number {
            for earlier in self.nodes.before(place, number) {
                self.finish_lanes_at(&earlier, out);
                self.nodes.finish(cx!(self, out), &earlier);
            }
        }
        let ends = place.match_indices('|').map(|(at, _)| at).chain([place.len()]);
        for end in ends.collect::<Vec<_>>() {
            let outer = &place[..end];
            let segment = outer.rsplit('|').next().unwrap_or(outer);
            if self.nodes.is_running(outer) || !segment.contains(':') {
                continue;
            }
            let mut node = Node::new(node_of(segment), outer);
            node.number = number.filter(|_| end == place.len());
            node.hidden = self.settings.hides_node(outer, "");
            self.nodes.start(cx!(self, out), outer, node);
        }
    }

    /// `{NODE: update}`, `{"__interrupt__": […]}`.
    pub(super) fn updates(&mut self, ns: &str, raw: &RawValue, out: &mut Vec<Event>) {
        let Some(members) = raw_json::members(raw) else {
            return self.tally.note("wrong type", "updates");
        };
        for (name, update) in members {
            if name == "__interrupt__" {
                self.interrupts(update, None);
            } else if !name.starts_with("__") {
                self.update(ns, &name, update, out);
            }
        }
    }

    pub(super) fn update(&mut self, ns: &str, name: &str, update: &RawValue, out: &mut Vec<Event>) {
        let steps = !self.run.has_events && !self.run.has_tasks;
        let mut key = None;
        if steps {
            let found = self.nodes.find(ns, name);
            let found = found.unwrap_or_else(|| {
                // It has not been heard of before: its step begins and ends here.
                let place: Box<str> = match ns {
                    "" => format!("{name}:").into(),
                    ns => format!("{ns}|{name}:").into(),
                };
                let mut node = Node::new(name, &place);
                node.hidden = self.settings.hides_node(&place, name);
                self.nodes.start(cx!(self, out), &place, node);
                place
            });
            key = Some(found);
        }
        let place = key.as_ref().and_then(|key| self.nodes.get(key)).map(|node| node.ns.clone());
        let place = place.unwrap_or_else(|| ns.into());
        if self.settings.hides_node(&place, name) {
            self.hide_returned(update);
        } else {
            let owner = if ns.is_empty() { None } else { self.nodes.owner(cx!(self, out), &place, None) };
            self.returned(update, &place, owner.as_ref(), out);
        }
        if let Some(key) = key {
            self.finish_lanes_at(&place, out);
            self.nodes.finish(cx!(self, out), &key);
        }
    }

    /// A task starts (`input`, `triggers`) or ends (`result`, `error`, `interrupts`).
    fn task(&mut self, ns: &str, raw: &RawValue, out: &mut Vec<Event>) {
        let (Some(task), Some(members)) = (Task::of(raw), raw_json::members(raw)) else {
            return self.tally.note("wrong type", "tasks");
        };
        let name = raw_json::filled(task.name, &mut self.tally).unwrap_or_default();
        let id = raw_json::filled(task.id, &mut self.tally).unwrap_or_default();
        let place = if ns.is_empty() { format!("{name}:{id}") } else { format!("{ns}|{name}:{id}") };
        let starts = members.iter().any(|(key, _)| key == "triggers" || key == "input");
        let is_pushed =
            raw_json::strings(task.triggers, &mut self.tally).iter().any(|it| it == "__pregel_push");
        if self.run.has_events {
            if let Some(interrupts) = task.interrupts.filter(|raw| raw.get() != "[]") {
                self.interrupts(interrupts, None);
            }
            return;
        }
        self.run.has_tasks = true;
        if starts {
            // `tasks` and `debug` tell of the same task.
            if self.nodes.is_running(&place) {
                return;
            }
            // A task that another one starts says nothing about the step of the graph.
            if !is_pushed {
                self.next_step(ns, out);
            }
            let mut node = Node::new(&name, &place);
            node.hidden = self.settings.hides_node(&place, &name);
            node.given = task.input.map(|input| self.given(input, ns)).unwrap_or_default();
            return self.nodes.start(cx!(self, out), &place, node);
        }
        if let Some(interrupts) = task.interrupts.filter(|raw| raw.get() != "[]") {
            // A task that was given one call to run stopped because of it.
            let given = self.nodes.get(&place).map(|node| node.given.clone()).unwrap_or_default();
            let call = if let [only] = &given[..] { Some(only) } else { None };
            self.interrupts(interrupts, call);
        }
        if let Some(error) = task.error {
            let (class, message) = failure(Some(error), &mut self.tally);
            if !matches!(class.as_deref(), Some("GraphInterrupt" | "NodeInterrupt")) {
                self.run.suspect(class, message);
            }
        }
        if let Some(result) = task.result
            && self.settings.hides_node(&place, &name)
        {
            self.hide_returned(result);
        } else if let Some(result) = task.result {
            let owner = self.nodes.owner(cx!(self, out), &place, None);
            self.returned(result, &place, owner.as_ref(), out);
        }
        self.finish_lanes_at(&place, out);
        self.nodes.finish(cx!(self, out), &place);
        self.nodes.ended(ns);
    }

    /// The graph at `ns` goes on to its next step. Its tasks that have not ended by then never will: they had
    /// ended before this run, which goes on behind an interrupt, or their failure was ignored.
    fn next_step(&mut self, ns: &str, out: &mut Vec<Event>) {
        for stale in self.nodes.next_step(ns) {
            self.finish_lanes_at(&stale, out);
            self.nodes.finish(cx!(self, out), &stale);
        }
    }

    /// The values of the graph at `ns` come when all that ran in its step has ended.
    fn step_is_over(&mut self, ns: &str, values: &RawValue, out: &mut Vec<Event>) {
        // Those of an interrupt come with the first task that it stops.
        if member(values, "__interrupt__").is_some() || self.run.has_interrupts() {
            return;
        }
        self.next_step(ns, out);
        if !self.run.has_events {
            self.finish_lanes_within(ns, out);
        }
    }

    fn checkpoint(&mut self, ns: &str, raw: &RawValue, out: &mut Vec<Event>) {
        self.next_step(ns, out);
        let checkpoint = Checkpoint::of(raw).unwrap_or_default();
        let config = checkpoint.config.and_then(Config::of).and_then(|config| config.configurable);
        let inner = config.and_then(Configurable::of).and_then(|config| config.checkpoint_ns);
        let inner = raw_json::filled(inner, &mut self.tally);
        if ns.is_empty()
            && inner.is_none()
            && let Some(values) = checkpoint.values
        {
            self.values(values, out);
            self.run.next =
                raw_json::strings(checkpoint.next, &mut self.tally).into_iter().map(Into::into).collect();
        }
    }

    fn debug(&mut self, ns: &str, raw: &RawValue, out: &mut Vec<Event>) {
        let entry = Debug::of(raw).unwrap_or_default();
        let kind = raw_json::filled(entry.kind, &mut self.tally);
        match (kind.as_deref(), entry.payload) {
            (Some("task" | "task_result"), Some(task)) => self.task(ns, task, out),
            (Some("checkpoint"), Some(checkpoint)) => self.checkpoint(ns, checkpoint, out),
            (kind, _) => self.tally.note("unknown debug entry", kind.unwrap_or_default()),
        }
    }
}

/// Whether a chunk only says that it is the last one.
fn says_nothing(chunk: &wire::Message<'_>) -> bool {
    let empty = |raw: Option<&RawValue>| raw.is_none_or(|raw| matches!(raw.get(), "\"\"" | "[]" | "{}"));
    empty(chunk.content)
        && empty(chunk.tool_call_chunks)
        && empty(chunk.tool_calls)
        && empty(chunk.invalid_tool_calls)
        && empty(chunk.additional_kwargs)
        && empty(chunk.usage_metadata)
}

/// Whether a message is a piece of one.
fn is_chunk(message: &wire::Message<'_>) -> bool {
    message.tool_call_chunks.is_some() || message.kind.is_some_and(|kind| kind.get().ends_with("Chunk\""))
}
