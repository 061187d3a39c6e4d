//! Messages of the user, which occur only in stored sessions.

use super::{
    AdkReader,
    decode::parse,
    emitter::AdkEmitter,
    failure::AdkFailure,
    media::{inline_media, linked_media},
    run::PartContext,
};
use crate::{
    event::{Body, Content, ContentPart, File, Role},
    format::{
        adk::wire::{AdkEvent, EventActions, PartList},
        derived_ids::part_id,
    },
    json::{Path, ReadResult},
};

impl AdkReader {
    /// An event of the user. The response to a run never contains one.
    pub(super) fn read_user_event(
        &mut self,
        event: &AdkEvent<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
        if let Some(parts) = parts {
            self.read_user_content(event, parts, emitter)?;
        }
        if event.partial == Some(true) {
            return Ok(());
        }
        if let Some(raw) = event.actions {
            let path = Path::Key(&Path::Root, "actions");
            let actions: EventActions<'_> = parse(raw, path)?;
            if let Some(delta) = &actions.state
                && let Some(patch) =
                    self.state.apply(delta, Path::Key(&path, "stateDelta"), &mut self.run.tally)?
            {
                emitter.push(Body::StateDelta { patch });
            }
            self.read_artifacts(&actions, emitter)?;
        }
        if let Some(failure) = AdkFailure::of_event(event) {
            self.failure = Some(failure);
        }
        Ok(())
    }

    fn read_user_content(
        &mut self,
        event: &AdkEvent<'_>,
        parts: &PartList<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        let id = self.fresh_id(event);
        let content = Path::Key(&Path::Root, "content");
        let list = Path::Key(&content, "parts");
        let mut message = Vec::new();
        let mut size = 0;
        let mut response_count = 0;
        for (number, part) in parts.iter().enumerate() {
            if let Some(response) = &part.response {
                let path = Path::Index(&list, number);
                let context =
                    PartContext { message: &id, event_id: "", long_running: &[], actions: None, path };
                self.run.read_function_response(response, response_count, true, context, emitter)?;
                response_count += 1;
            } else if let Some(text) = part.text.as_ref().filter(|text| !text.as_str().is_empty()) {
                size += text.as_str().len();
                message.push(ContentPart::text(text.as_str()));
            } else if let Some(blob) = &part.inline {
                let (kind, source) = inline_media(blob);
                size += blob.data.as_ref().map_or(0, |data| data.as_str().len());
                message.push(ContentPart::media(kind, source));
            } else if let Some(file) = &part.file {
                let (kind, source) = linked_media(file);
                message.push(ContentPart::media(kind, source));
            }
        }
        if message.is_empty() {
            return Ok(());
        }
        emitter.push(Body::TextStart { message: id.clone(), role: Some(Role::User), name: None });
        for part in &message {
            if let ContentPart::Text { text, .. } = part {
                emitter.push(Body::TextDelta { message: id.clone(), delta: text.clone() });
            }
        }
        emitter.push(Body::TextEnd { message: id.clone() });
        let media = message.iter().filter_map(|part| match part {
            ContentPart::Media { kind, source, .. } => Some((*kind, source.clone())),
            ContentPart::Text { .. } => None,
        });
        for (number, (kind, source)) in (0..).zip(media) {
            emitter.push(Body::File(Box::new(File {
                id: part_id(&id, "file", number),
                message: Some(id.clone()),
                kind,
                source,
                name: None,
            })));
        }
        let content = match <[ContentPart; 1]>::try_from(message) {
            Ok([ContentPart::Text { text, .. }]) => Content::Text(text),
            Ok(one) => Content::Parts(one.into()),
            Err(parts) => Content::Parts(parts),
        };
        self.run.transcript.add_user_message(&id, content, size);
        Ok(())
    }
}
