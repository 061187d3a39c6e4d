//! The person's side of a conversation, which only a stored session tells.

use super::{
    AdkReader, citations, decode::parse, emitter::AdkEmitter, failure::AdkFailure, model_turn::part_id,
    run::PartContext,
};
use crate::{
    event::{Body, Content, ContentPart, File, Role},
    format::adk::wire::{AdkEvent, EventActions, PartList},
    json::{Path, ReadError},
};

impl AdkReader {
    /// What a person said: in stored events, never in the answer to a run.
    pub(super) fn user(&mut self, event: &AdkEvent<'_>, emit: &mut AdkEmitter<'_>) -> Result<(), ReadError> {
        let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
        if let Some(parts) = parts {
            self.user_content(event, parts, emit)?;
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
                emit.push(Body::StateDelta { patch });
            }
            self.artifacts(&actions, emit)?;
        }
        if let Some(failure) = AdkFailure::of_event(event) {
            self.failure = Some(failure);
        }
        Ok(())
    }

    fn user_content(
        &mut self,
        event: &AdkEvent<'_>,
        parts: &PartList<'_>,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<(), ReadError> {
        let id = self.fresh_id(event);
        let content = Path::Key(&Path::Root, "content");
        let list = Path::Key(&content, "parts");
        let mut said = Vec::new();
        let mut size = 0;
        let mut answers = 0;
        for (number, part) in parts.iter().enumerate() {
            if let Some(response) = &part.response {
                let path = Path::Index(&list, number);
                let at = PartContext { event: &id, source: "", long_running: &[], actions: None, path };
                self.run.answer(response, answers, true, at, emit)?;
                answers += 1;
            } else if let Some(text) = part.text.as_ref().filter(|text| !text.as_str().is_empty()) {
                size += text.as_str().len();
                said.push(ContentPart::text(text.as_str()));
            } else if let Some(blob) = &part.inline {
                let (kind, source) = citations::inline(blob);
                size += blob.data.as_ref().map_or(0, |data| data.as_str().len());
                said.push(ContentPart::media(kind, source));
            } else if let Some(file) = &part.file {
                let (kind, source) = citations::elsewhere(file);
                said.push(ContentPart::media(kind, source));
            }
        }
        if said.is_empty() {
            return Ok(());
        }
        emit.push(Body::TextStart { message: id.clone(), role: Some(Role::User), name: None });
        for part in &said {
            if let ContentPart::Text { text, .. } = part {
                emit.push(Body::TextDelta { message: id.clone(), delta: text.clone() });
            }
        }
        emit.push(Body::TextEnd { message: id.clone() });
        let media = said.iter().filter_map(|part| match part {
            ContentPart::Media { kind, source, .. } => Some((*kind, source.clone())),
            ContentPart::Text { .. } => None,
        });
        for (number, (kind, source)) in (0..).zip(media) {
            emit.push(Body::File(Box::new(File {
                id: part_id(&id, "file", number),
                message: Some(id.clone()),
                kind,
                source,
                name: None,
            })));
        }
        let content = match <[ContentPart; 1]>::try_from(said) {
            Ok([ContentPart::Text { text, .. }]) => Content::Text(text),
            Ok(one) => Content::Parts(one.into()),
            Err(parts) => Content::Parts(parts),
        };
        self.run.transcript.user(&id, content, size);
        Ok(())
    }
}
