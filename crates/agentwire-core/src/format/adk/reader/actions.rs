//! Side effects of an event: state changes, artifacts, transfers, and actions without a canonical event.

use super::{AdkReader, emitter::AdkEmitter, steps::EventOrigin};
use crate::{
    event::Body,
    format::adk::wire::{AdkEvent, AdkText, EventActions},
    json::{Json, Path, ReadResult, json},
};

impl AdkReader {
    /// Applies and emits the actions and the output of an event.
    pub(super) fn read_actions(
        &mut self,
        actions: &EventActions<'_>,
        event: &AdkEvent<'_>,
        origin: EventOrigin<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        let path = Path::Key(&Path::Root, "actions");
        if let Some(delta) = &actions.state {
            let path = Path::Key(&path, "stateDelta");
            if let Some(patch) = self.state.apply(delta, path, &mut self.run.tally)? {
                emitter.push(Body::StateDelta { patch });
            }
        }
        self.read_artifacts(actions, emitter)?;
        let author = || Json::string(origin.author);
        if let Some(agent) = &actions.transfer {
            let parts = event.content.as_ref().and_then(|content| content.parts.as_ref());
            let mut responses =
                parts.iter().flat_map(|parts| parts.iter()).filter_map(|part| part.response.as_ref());
            let call = responses.next().and_then(|response| response.id.as_ref()).map(AdkText::as_str);
            let call = call.map(|native| self.run.shown_id(native));
            self.steps.note_transfer(agent.as_str(), call);
            let mut members = vec![("from", author()), ("to", Json::string(agent.as_str()))];
            if let Some(reason) = &actions.transfer_reason {
                members.push(("reason", Json::string(reason.as_str())));
            }
            emitter.custom("adk.transfer", members);
        }
        if actions.escalate == Some(true) {
            emitter.custom("adk.escalate", [("author", author())]);
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
            emitter.custom("adk.actions", members);
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
            emitter.custom("adk.output", [("path", Json::string(origin.path)), ("output", output)]);
        }
        Ok(())
    }

    /// Emits the new artifact versions.
    pub(super) fn read_artifacts(
        &mut self,
        actions: &EventActions<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        let path = Path::Key(&Path::Root, "actions");
        let path = Path::Key(&path, "artifactDelta");
        for (filename, raw) in actions.artifacts.iter().flat_map(|entries| &entries.0) {
            let filename = filename.as_str();
            let version = json(raw, Path::Key(&path, filename), &mut self.run.tally)?;
            emitter.custom("adk.artifact", [("filename", Json::string(filename)), ("version", version)]);
        }
        Ok(())
    }
}
