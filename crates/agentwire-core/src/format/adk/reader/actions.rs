//! What an event carries beside what it says, most of which the canonical events have no word for.

use super::{AdkReader, citations, decode::parse, emitter::AdkEmitter, steps::EventOrigin};
use crate::{
    event::{Body, MessageId},
    fold::carrier,
    format::adk::wire::{AdkEvent, AdkText, EventActions, UsageMetadata},
    json::{Json, Path, ReadError, json},
};

impl AdkReader {
    /// What comes with an answer.
    pub(super) fn extras(
        &mut self,
        event: &AdkEvent<'_>,
        message: Option<&MessageId>,
        model: Option<&str>,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<(), ReadError> {
        if let Some(raw) = event.usage {
            let counts: UsageMetadata<'_> = parse(raw, Path::Key(&Path::Root, "usageMetadata"))?;
            citations::add_usage(&mut self.usage, &counts, model);
        }
        if event.grounding.is_some() || event.citations.is_some() {
            let message = match message {
                Some(message) => message.clone(),
                None => self.fresh_id(event),
            };
            for source in citations::sources(&message, event.grounding, event.citations)? {
                self.run.transcript.activity(
                    &source.id,
                    "agentwire.source",
                    carrier::source_content(&source),
                );
                emit.push(Body::Source(Box::new(source)));
            }
        }
        for (name, key, raw) in [
            ("adk.grounding", "groundingMetadata", event.grounding),
            ("adk.citations", "citationMetadata", event.citations),
        ] {
            if let Some(raw) = raw {
                let value = json(raw, Path::Key(&Path::Root, key), &mut self.run.tally)?;
                let name = name.into();
                emit.push(Body::Custom { name, value });
            }
        }
        if let Some(raw) = event.custom_metadata {
            let value = json(raw, Path::Key(&Path::Root, "customMetadata"), &mut self.run.tally)?;
            if value.get() != "{}" && self.last_metadata.as_ref() != Some(&value) {
                emit.push(Body::Custom { name: "adk.metadata".into(), value: value.clone() });
                self.last_metadata = Some(value);
            }
        }
        self.transcriptions(event, emit)
    }

    /// What was heard and spoken, in live mode.
    pub(super) fn transcriptions(
        &mut self,
        event: &AdkEvent<'_>,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<(), ReadError> {
        for (name, key, raw) in [
            ("adk.input_transcription", "inputTranscription", event.input_transcription),
            ("adk.output_transcription", "outputTranscription", event.output_transcription),
        ] {
            if let Some(raw) = raw {
                let value = json(raw, Path::Key(&Path::Root, key), &mut self.run.tally)?;
                let name = name.into();
                emit.push(Body::Custom { name, value });
            }
        }
        Ok(())
    }

    /// What an event does beside what it says.
    pub(super) fn actions(
        &mut self,
        actions: &EventActions<'_>,
        event: &AdkEvent<'_>,
        place: EventOrigin<'_>,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<(), ReadError> {
        let path = Path::Key(&Path::Root, "actions");
        if let Some(delta) = &actions.state {
            let path = Path::Key(&path, "stateDelta");
            if let Some(patch) = self.state.apply(delta, path, &mut self.run.tally)? {
                emit.push(Body::StateDelta { patch });
            }
        }
        self.artifacts(actions, emit)?;
        let author = || Json::string(place.author);
        if let Some(agent) = &actions.transfer {
            let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
            let mut answers =
                parts.iter().flat_map(|parts| parts.iter()).filter_map(|part| part.response.as_ref());
            let call = answers.next().and_then(|answer| answer.id.as_ref()).map(AdkText::as_str);
            let call = call.map(|native| self.run.shown(native));
            self.steps.transfer(agent.as_str(), call);
            let mut members = vec![("from", author()), ("to", Json::string(agent.as_str()))];
            if let Some(reason) = &actions.transfer_reason {
                members.push(("reason", Json::string(reason.as_str())));
            }
            emit.custom("adk.transfer", members);
        }
        if actions.escalate == Some(true) {
            emit.custom("adk.escalate", [("author", author())]);
        }
        let others = [
            ("compaction", actions.compaction),
            ("endOfAgent", actions.end_of_agent),
            ("agentState", actions.agent_state),
            ("route", actions.route),
            ("renderUiWidgets", actions.widgets),
            ("setModelResponse", actions.model_response),
        ];
        let mut members = Vec::new();
        for (name, raw) in others {
            if let Some(raw) = raw {
                members.push((name, json(raw, Path::Key(&path, name), &mut self.run.tally)?));
            }
        }
        if let Some(invocation) = &actions.rewind {
            members.push(("rewindBeforeInvocationId", Json::string(invocation.as_str())));
        }
        if !members.is_empty() {
            members.insert(0, ("author", author()));
            emit.custom("adk.actions", members);
        }
        for name in &actions.unknown {
            self.run.tally.note("unknown property", &format!("actions.{}", name.as_str()));
        }
        if let Some(raw) = event.output {
            let output = json(raw, Path::Key(&Path::Root, "output"), &mut self.run.tally)?;
            let is_root = |path: &AdkText<'_>| !path.as_str().contains('/');
            let outputs = event.node.as_ref().and_then(|node| node.output_for.as_ref());
            if outputs.is_some_and(|paths| paths.iter().any(is_root)) && !output.is_null() {
                self.result = Some(output.clone());
            }
            emit.custom("adk.output", [("path", Json::string(place.path)), ("output", output)]);
        }
        Ok(())
    }

    pub(super) fn artifacts(
        &mut self,
        actions: &EventActions<'_>,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<(), ReadError> {
        let path = Path::Key(&Path::Root, "actions");
        let path = Path::Key(&path, "artifactDelta");
        for (filename, raw) in actions.artifacts.iter().flat_map(|entries| &entries.0) {
            let filename = filename.as_str();
            let version = json(raw, Path::Key(&path, filename), &mut self.run.tally)?;
            emit.custom("adk.artifact", [("filename", Json::string(filename)), ("version", version)]);
        }
        Ok(())
    }
}
