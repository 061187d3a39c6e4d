//! Everything that is drawn and is neither text nor thinking: blocks, activities, sources, files.

use serde_json::Value;

use super::{
    super::{
        delta::{self, Place, Shape},
        derived_ids::{Drawn, Placed},
        nesting::{compose, fits},
    },
    HaiWriter, TOO_DEEP, agui_event,
    business::Start,
    companions::{Companions, marker},
    stands_for,
    text::take_place,
};
use crate::{
    event::{Block, Body, Event, File, MediaKind, MessageId, PartSource, Source},
    fold::carrier,
    format::Fidelity,
    framing::Frames,
    json::{Json, Object},
    patch::{self, Limits, Patch},
};

/// Activities whose content is remembered, so that a patch can be shown; and how long a content may be. A user
/// interface shows a handful, and one frame holds no more.
const MAX_ACTIVITIES: usize = 256;
const MAX_CONTENT: usize = 1 << 20;

impl HaiWriter {
    pub(crate) fn activity_snapshot(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        let Body::ActivitySnapshot { message, kind, content, replace } = &event.body else {
            unreachable!("asked for an activity")
        };
        if *replace != Some(false) || !self.business.activities.contains_key(message) {
            self.remember(message, content);
        }
        self.activity(event, message, kind, content, out)
    }

    pub(crate) fn source(&mut self, event: &Event, source: &Source, out: &mut Frames) -> Fidelity {
        let content = carrier::source_content(source);
        self.drawn_as(event, &source.id, source.message.as_ref(), "source", content.into(), out)
    }

    pub(crate) fn file(&mut self, event: &Event, file: &File, out: &mut Frames) -> Fidelity {
        let (kind, data) = file_output(file);
        self.drawn_as(event, &file.id, file.message.as_ref(), kind, data, out)
    }

    pub(crate) fn block(&mut self, event: &Event, block: &Block, out: &mut Frames) -> Fidelity {
        let mut companions = self.companions(event);
        let bare = companions.bare();
        // In profile `@text` there is no start to say it again.
        let said = if self.shape == Shape::Text { None } else { companions.take_object("start") };
        let place = Place {
            layout: block.layout.clone().filter(|layout| !layout.is_null()),
            block_id: block.block_id.clone().filter(|id| !id.is_empty()),
            style: block.style.clone().filter(|style| !style.is_null()),
            more: companions.take_object("delta"),
        };
        self.host_said(&block.message, said.as_ref(), &bare, out);
        let placed = Placed {
            layout: place.layout.as_ref(),
            block_id: place.block_id.as_deref(),
            style: place.style.as_ref(),
        };
        let drawn = self.ledger.drawn(&block.message, &block.output, placed);
        let marked = if drawn == Drawn::Block(block.id.clone()) && delta::is_block(&block.output) {
            self.ledger.took_drawn(&block.message, &block.output, placed, &drawn);
            None
        } else {
            let mut marked = stands_for("ACTIVITY_SNAPSHOT");
            marked.push(("messageId", Json::string(&block.id)));
            marked.push(("blockMessageId", Json::string(&block.message)));
            marker(marked)
        };
        self.content(&block.message, &block.output, &place, companions, marked, out);
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
        let mut companions = self.companions(event);
        if kind == "hai.toolCallShow"
            && let Some(host) = companions.take_str("messageId").map(MessageId::from)
            && let Some(output) = companions.take_object("output")
        {
            let place = take_place(&mut companions);
            let placed = Placed {
                layout: place.layout.as_ref(),
                block_id: place.block_id.as_deref(),
                style: place.style.as_ref(),
            };
            let drawn = self.ledger.drawn(&host, &output, placed);
            if drawn == Drawn::More(message.clone(), patch.clone()) {
                self.ledger.took_drawn(&host, &output, placed, &drawn);
                let bare = companions.bare();
                self.host_lazily(&host, Start::default(), &bare, out);
                self.content(&host, &output, &place, companions, None, out);
                return Fidelity::Exact;
            }
        }
        let Some(content) = self.business.activities.get_mut(message) else {
            return self.carry(event, out);
        };
        let applied = patch::apply(content, patch, &Limits::default()).is_ok() && content.is_object();
        let Some(content) =
            Object::from_value(content).filter(|content| applied && content.get().len() <= MAX_CONTENT)
        else {
            return self.carry(event, out);
        };
        self.activity(event, message, kind, &content, out)
    }

    fn remember(&mut self, message: &MessageId, content: &Object) {
        let activities = &mut self.business.activities;
        if content.get().len() > MAX_CONTENT {
            activities.shift_remove(message);
            return;
        }
        if activities.len() >= MAX_ACTIVITIES && !activities.contains_key(message) {
            activities.shift_remove_index(0);
        }
        activities.insert(message.clone(), content.to_value());
    }

    /// An activity, whole: as a block of its own kind.
    fn activity(
        &mut self,
        event: &Event,
        message: &MessageId,
        kind: &str,
        content: &Object,
        out: &mut Frames,
    ) -> Fidelity {
        if !fits(content.get(), 2) {
            return self.carry(event, out);
        }
        let output = compose([("type", Json::string(kind)), ("data", content.clone().into())]);
        let companions = self.companions(event);
        let marked = match &event.body {
            Body::ActivitySnapshot { replace, .. } => {
                let mut marked = stands_for("ACTIVITY_SNAPSHOT");
                marked.push(("messageId", Json::string(message)));
                marked.push(("activityType", Json::string(kind)));
                marked.extend(replace.map(|replace| ("replace", Json::from(Value::from(replace)))));
                marker(marked)
            }
            body => agui_event(&Event::new(body.clone()), 1),
        };
        if marked.is_none() {
            return self.carry(event, out);
        }
        self.drawn(message, None, &output, companions, marked, out);
        Fidelity::Exact
    }

    /// Something that AG-UI carries as an activity and HAI shows in another form.
    fn drawn_as(
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
        let companions = self.companions(event).bare();
        self.drawn(id, message, &output, companions, Some(whole), out);
        Fidelity::Exact
    }

    /// Draws an output in the message that it belongs to, if that is open, else in the latest one, else in one
    /// of its own.
    fn drawn(
        &mut self,
        id: &MessageId,
        message: Option<&MessageId>,
        output: &Object,
        companions: Companions,
        marked: Option<Object>,
        out: &mut Frames,
    ) {
        let place = Place { block_id: Some(id.as_str().into()), ..Place::default() };
        let texts = &self.business.texts;
        let named = message.and_then(|message| texts.get(message));
        let host = named.or_else(|| texts.values().next_back()).map(|text| text.wire.clone());
        if let Some(host) = host {
            self.content(&host, output, &place, companions, marked, out);
            return;
        }
        let own = self.fresh(id);
        let bare = companions.bare();
        self.join_wire(&own, &bare, out);
        self.content(&own, output, &place, companions, marked, out);
        self.leave_wire(&own, &bare, out);
    }

    /// Shows a tool call in a message of its own, which stays open until [`HaiWriter::hide`].
    pub(crate) fn show(
        &mut self,
        message: &MessageId,
        output: &Object,
        companions: Companions,
        marked: Option<Object>,
        out: &mut Frames,
    ) {
        let bare = companions.bare();
        self.rejoin(message, &bare, out);
        self.content(message, output, &Place::default(), companions, marked, out);
    }

    /// Closes what [`HaiWriter::show`] opened.
    pub(crate) fn hide(&mut self, message: &MessageId, companions: &Companions, out: &mut Frames) {
        self.leave_wire(message, companions, out);
    }

    /// An id for a message of that name which no message has had.
    pub(crate) fn fresh_message(&self, id: &str) -> MessageId {
        self.fresh(&id.into())
    }
}

/// A file as an output: its kind, and its `data`.
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
