//! Native events of chat models and completion models.

use serde_json::value::RawValue;

use crate::{
    event::Event,
    format::langgraph::{
        raw_json,
        reader::{LangGraphReader, cx, model_stream::ModelStream, output_rules::OutputRules},
        wire::{EventData, EventMetadata, EventName, NativeBlock, NativeFrame, NativeMessage},
    },
};

impl LangGraphReader {
    pub(super) fn open_model_stream(&mut self, run: &str, native: &NativeFrame<'_>, out: &mut Vec<Event>) {
        if self.streams.contains_key(run) {
            return;
        }
        let is_hidden = self.is_hidden(native);
        let meta = native.metadata.and_then(EventMetadata::of).unwrap_or_default();
        let tally = &mut self.tally;
        let ns = raw_json::non_empty(meta.ns.or(meta.inner_ns), tally).unwrap_or_default();
        let agent = raw_json::non_empty(meta.agent, tally);
        let mut stream = ModelStream::new(format!("lc_run--{run}"), &ns);
        let parents = raw_json::strings(native.parent_ids, tally);
        let node = parents.iter().rev().find(|parent| self.nodes.is_running(parent));
        stream.identity.node = node.map(|node| node.as_ref().into());
        stream.identity.provider = raw_json::non_empty(meta.provider, tally).map(Into::into);
        stream.identity.model = raw_json::non_empty(meta.model, tally).map(Into::into);
        stream.identity.is_hidden = is_hidden;
        stream.identity.rules = OutputRules::of(&meta, &mut self.tally);
        if !is_hidden {
            stream.identity.owner = self.nodes.subagent_at(cx!(self, out), &ns, agent.as_deref());
        }
        self.add_stream(run, stream, out);
    }

    pub(super) fn model_chunk(
        &mut self,
        run: &str,
        native: &NativeFrame<'_>,
        data: &EventData<'_>,
        frame: &str,
        out: &mut Vec<Event>,
    ) {
        let Some(chunk) = data.chunk else {
            return self.tally.note("wrong type", "on_chat_model_stream data.chunk");
        };
        self.open_model_stream(run, native, out);
        match NativeMessage::read(chunk, &mut self.tally) {
            Some((_, message)) => self.read_model_chunk(run, &message, frame, out),
            // Chunks without a type, and bare texts.
            None => match NativeMessage::of(chunk) {
                Some(message) if message.content.is_some() => {
                    self.read_model_chunk(run, &message, frame, out)
                }
                Some(message) if message.text.is_some() => {
                    let message = NativeMessage { content: message.text, ..Default::default() };
                    self.read_model_chunk(run, &message, frame, out);
                }
                _ if chunk.get().starts_with('"') => {
                    let message = NativeMessage { content: Some(chunk), ..Default::default() };
                    self.read_model_chunk(run, &message, frame, out);
                }
                _ => self.tally.note("wrong type", "on_chat_model_stream data.chunk"),
            },
        }
    }

    pub(super) fn model_end(
        &mut self,
        run: &str,
        native: &NativeFrame<'_>,
        data: &EventData<'_>,
        out: &mut Vec<Event>,
    ) {
        self.open_model_stream(run, native, out);
        let message = data.output.and_then(|raw| generation(raw, "message").or(Some(raw)));
        let message = message.and_then(|raw| NativeMessage::read(raw, &mut self.tally));
        match message {
            Some((_, message)) => {
                if let Some(at) = self.streams.get_index_of(run) {
                    self.streams[at].read_complete(&message, cx!(self, out));
                }
            }
            None => self.tally.note("wrong type", "on_chat_model_end data.output"),
        }
        self.finish_stream(run, out);
    }

    /// Counts the tokens of a model that is not streamed.
    pub(super) fn unstreamed_model(&mut self, name: EventName, data: &EventData<'_>) {
        if name != EventName::ChatModelEnd {
            return;
        }
        let message = data.output.and_then(|raw| generation(raw, "message").or(Some(raw)));
        if let Some((_, message)) = message.and_then(|raw| NativeMessage::read(raw, &mut self.tally)) {
            let mut stream = ModelStream::new("", "");
            if let Some(response) = message.response_metadata {
                stream.read_response(response, &mut self.tally);
            }
            stream.set_usage(message.usage_metadata);
            let id = message.id(&mut self.tally);
            if let Some(usage) = stream.take_usage() {
                self.run.usage.add(usage, id.as_deref());
            }
        }
    }

    pub(super) fn llm_stream(
        &mut self,
        run: &str,
        native: &NativeFrame<'_>,
        data: &EventData<'_>,
        out: &mut Vec<Event>,
    ) {
        let chunk = data.chunk;
        let text = chunk.and_then(|raw| NativeBlock::of(raw).and_then(|block| block.text).or(Some(raw)));
        let Some(text) = text.and_then(|raw| raw_json::string(raw, &mut self.tally)) else {
            return self.tally.note("wrong type", "on_llm_stream data.chunk");
        };
        self.open_model_stream(run, native, out);
        if let Some(at) = self.streams.get_index_of(run) {
            self.streams[at].send_text(&text, cx!(self, out));
        }
    }

    pub(super) fn llm_end(
        &mut self,
        run: &str,
        native: &NativeFrame<'_>,
        data: &EventData<'_>,
        out: &mut Vec<Event>,
    ) {
        self.open_model_stream(run, native, out);
        let text = data.output.and_then(|output| generation(output, "text"));
        let text = text.and_then(|raw| raw_json::string(raw, &mut self.tally));
        if text.is_none() {
            self.tally.note("wrong type", "on_llm_end data.output");
        }
        if let Some(at) = self.streams.get_index_of(run) {
            self.streams[at].send_accumulated_text(&text.unwrap_or_default(), cx!(self, out));
            let usage = data
                .output
                .and_then(|raw| raw_json::member(raw, "llm_output"))
                .and_then(|raw| raw_json::member(raw, "token_usage"));
            self.streams[at].set_usage(usage);
        }
        self.finish_stream(run, out);
    }
}

/// A member of the first generation in `{"generations": [[{…}]]}`.
fn generation<'a>(output: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let generations = raw_json::elements(raw_json::member(output, "generations")?)?;
    let first = *generations.first()?;
    let first = raw_json::elements(first).and_then(|list| list.first().copied()).unwrap_or(first);
    raw_json::member(first, name)
}
