//! Writes outputs that are neither text nor thinking: blocks, activities, sources, files.

use serde_json::Value;

use super::{
    super::{
        delta::{self, DeltaShape, Placement},
        derived_ids::BlockTarget,
        nesting::{compose, fits},
    },
    HaiWriter, TOO_DEEP, agui_event,
    business::MessageStart,
    marker_entries,
    members::{EventMembers, build_marker},
    text::remove_placement,
};
use crate::{
    event::{Block, Body, Citation, Event, File, MediaKind, MessageId, PartSource},
    fold::carrier,
    format::Fidelity,
    framing::Frames,
    json::{Json, Object},
    patch::{self, Limits, Patch},
};

/// Limits of the activities whose content is stored to apply patches, and of the size of a content. A user
/// interface displays few, and a frame has no more.
const MAX_ACTIVITIES: usize = 256;
const MAX_CONTENT: usize = 1 << 20;

impl HaiWriter {
    pub(crate) fn activity_snapshot(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        let Body::ActivitySnapshot { message, kind, content, replace } = &event.body else {
            unreachable!("called for ACTIVITY_SNAPSHOT only")
        };
        if *replace != Some(false) || !self.open.activities.contains_key(message) {
            self.remember_activity(message, content);
        }
        self.activity(event, message, kind, content, out)
    }

    pub(crate) fn source(&mut self, event: &Event, source: &Citation, out: &mut Frames) -> Fidelity {
        let content = carrier::source_content(source);
        self.write_as_output(event, &source.id, source.message.as_ref(), "source", content.into(), out)
    }

    pub(crate) fn file(&mut self, event: &Event, file: &File, out: &mut Frames) -> Fidelity {
        let (kind, data) = file_output(file);
        self.write_as_output(event, &file.id, file.message.as_ref(), kind, data, out)
    }

    pub(crate) fn block(&mut self, event: &Event, block: &Block, out: &mut Frames) -> Fidelity {
        let mut members = self.members(event);
        let bare = members.bare();
        // Profile `@text` writes no start that could repeat them.
        let details = if self.shape == DeltaShape::Text { None } else { members.remove_object("start") };
        let placement = Placement {
            layout: block.layout.clone().filter(|layout| !layout.is_null()),
            block_id: block.block_id.clone().filter(|id| !id.is_empty()),
            style: block.style.clone().filter(|style| !style.is_null()),
            more: members.remove_object("delta"),
        };
        self.open_with_details(&block.message, details.as_ref(), &bare, out);
        let position = placement.by_ref();
        let target = self.derived_ids.next_block(&block.message, &block.output, position);
        let marker = if target == BlockTarget::New(block.id.clone()) && delta::is_block(&block.output) {
            self.derived_ids.count_block(&block.message, &block.output, position, &target);
            None
        } else {
            let mut entries = marker_entries("ACTIVITY_SNAPSHOT");
            entries.push(("messageId", Json::string(&block.id)));
            entries.push(("blockMessageId", Json::string(&block.message)));
            build_marker(entries)
        };
        self.content(&block.message, &block.output, &placement, members, marker, out);
        Fidelity::Exact
    }

    pub(crate) fn activity_delta(
        &mut self,
        event: &Event,
        message: &MessageId,
        kind: &str,
        patch: &Patch,
        out: &mut Frames,
    ) -> Fidelity {
        let mut members = self.members(event);
        if kind == "hai.toolCallShow"
            && let Some(host) = members.remove_str("messageId").map(MessageId::from)
            && let Some(output) = members.remove_object("output")
        {
            let placement = remove_placement(&mut members);
            let position = placement.by_ref();
            let target = self.derived_ids.next_block(&host, &output, position);
            if target == BlockTarget::Update(message.clone(), patch.clone()) {
                self.derived_ids.count_block(&host, &output, position, &target);
                let bare = members.bare();
                self.open_idle(&host, MessageStart::default(), &bare, out);
                self.content(&host, &output, &placement, members, None, out);
                return Fidelity::Exact;
            }
        }
        let Some(content) = self.open.activities.get_mut(message) else {
            return self.write_wrapped(event, out);
        };
        let applied = patch::apply(content, patch, &Limits::default()).is_ok() && content.is_object();
        let Some(content) =
            Object::from_value(content).filter(|content| applied && content.get().len() <= MAX_CONTENT)
        else {
            return self.write_wrapped(event, out);
        };
        self.activity(event, message, kind, &content, out)
    }

    fn remember_activity(&mut self, message: &MessageId, content: &Object) {
        let activities = &mut self.open.activities;
        if content.get().len() > MAX_CONTENT {
            activities.shift_remove(message);
            return;
        }
        if activities.len() >= MAX_ACTIVITIES && !activities.contains_key(message) {
            activities.shift_remove_index(0);
            let known = &self.open.activities;
            self.open.activity_hosts.retain(|activity, _| known.contains_key(activity));
        }
        let activities = &mut self.open.activities;
        activities.insert(message.clone(), content.to_value());
    }

    /// Writes a complete activity as a block whose type is its kind.
    fn activity(
        &mut self,
        event: &Event,
        message: &MessageId,
        kind: &str,
        content: &Object,
        out: &mut Frames,
    ) -> Fidelity {
        if !fits(content.get(), 2) {
            return self.write_wrapped(event, out);
        }
        let output = compose([("type", Json::string(kind)), ("data", content.clone().into())]);
        let members = self.members(event);
        let marker = match &event.body {
            Body::ActivitySnapshot { replace, .. } => {
                let mut entries = marker_entries("ACTIVITY_SNAPSHOT");
                entries.push(("messageId", Json::string(message)));
                entries.push(("activityType", Json::string(kind)));
                entries.extend(replace.map(|replace| ("replace", Json::from(Value::from(replace)))));
                build_marker(entries)
            }
            body => agui_event(&Event::new(body.clone()), 1),
        };
        if marker.is_none() {
            return self.write_wrapped(event, out);
        }
        self.write_output(message, None, &output, members, marker, out);
        Fidelity::Exact
    }

    /// Writes an event that AG-UI carries as an activity and HAI displays in another form.
    fn write_as_output(
        &mut self,
        event: &Event,
        id: &MessageId,
        message: Option<&MessageId>,
        kind: &str,
        data: Json,
        out: &mut Frames,
    ) -> Fidelity {
        let Some(whole) = agui_event(event, 1) else {
            return TOO_DEEP;
        };
        let output = compose([("type", Json::string(kind)), ("data", data)]);
        let members = self.members(event).bare();
        self.write_output(id, message, &output, members, Some(whole), out);
        Fidelity::Exact
    }

    /// Writes an output into the message it belongs to if that is open, else into the latest one, else into a
    /// new one.
    fn write_output(
        &mut self,
        id: &MessageId,
        message: Option<&MessageId>,
        output: &Object,
        members: EventMembers,
        marker: Option<Object>,
        out: &mut Frames,
    ) {
        let placement = Placement { block_id: Some(id.as_str().into()), ..Placement::default() };
        let texts = &self.open.texts;
        let named = message.and_then(|message| texts.get(message));
        let open = named.or_else(|| texts.values().next_back()).map(|text| text.wire.clone());
        let is_activity = self.open.activities.contains_key(id);
        let first = self.open.activity_hosts.get(id).filter(|_| is_activity).cloned();
        let is_open = first
            .as_ref()
            .or(open.as_ref())
            .is_some_and(|host| self.open.wires.contains_key(&self.wire_id(host)));
        let message = first.or(open).unwrap_or_else(|| self.unused_id(id));
        if is_activity {
            self.open.activity_hosts.insert(id.clone(), message.clone());
        }
        if is_open {
            self.content(&message, output, &placement, members, marker, out);
            return;
        }
        let bare = members.bare();
        self.join_wire(&message, &bare, out);
        self.content(&message, output, &placement, members, marker, out);
        self.leave_wire(&message, &bare, out);
    }

    /// Writes a tool list into a separate message, open until [`HaiWriter::close_tool_list`].
    pub(crate) fn write_tool_list(
        &mut self,
        message: &MessageId,
        output: &Object,
        members: EventMembers,
        marker: Option<Object>,
        out: &mut Frames,
    ) {
        let bare = members.bare();
        self.rejoin(message, &bare, out);
        self.content(message, output, &Placement::default(), members, marker, out);
        if self.is_serial {
            self.leave_wire(message, &bare, out);
        }
    }

    /// Closes the message of [`HaiWriter::write_tool_list`].
    pub(crate) fn close_tool_list(&mut self, message: &MessageId, members: &EventMembers, out: &mut Frames) {
        self.leave_wire(message, members, out);
    }

    /// An unused message id, `id` if possible.
    pub(crate) fn unused_message_id(&self, id: &str) -> MessageId {
        self.unused_id(&id.into())
    }
}

/// The type and `data` of the output for a file.
fn file_output(file: &File) -> (&'static str, Json) {
    let kind = match file.kind {
        MediaKind::Image => "image",
        MediaKind::Audio => "audio",
        MediaKind::Video => "video",
        MediaKind::Document => "file",
    };
    let (key, value) = match &file.source {
        PartSource::Data { value, .. } => ("data", value),
        PartSource::Url { value, .. } => ("url", value),
        PartSource::File { value, .. } => ("file", value),
    };
    let data = [
        (key, Some(Json::string(value))),
        ("mimeType", file.source.mime_type().map(Json::string)),
        ("name", file.name.as_deref().map(Json::string)),
    ];
    (kind, compose(data.into_iter().filter_map(|(key, value)| Some((key, value?)))).into())
}
