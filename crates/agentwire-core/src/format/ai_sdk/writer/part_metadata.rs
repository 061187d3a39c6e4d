//! What is known about a part beside its text: travels as the part's provider metadata.
//!
//! A client keeps `providerMetadata` with the part and sends it back with the history. That is how a later
//! request can name the very message ids that the agent used, and how signatures survive.

use super::encode;
use crate::{
    event::{Event, SubagentId},
    format::ai_sdk::{
        reader::metadata::{self, is_provider_metadata},
        wire::{AGENTWIRE, native},
    },
    json::{Json, Object},
};

/// ReceivedMetadata about a part.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    pub(super) subagent: Option<SubagentId>,
    pub(super) name: Option<Box<str>>,
    pub(super) title: Option<Box<str>>,
    pub(super) encrypted: Option<Box<str>>,
    pub(super) metadata: Option<Object>,
}

impl About {
    /// What an opening event says.
    pub(super) fn of(event: &Event) -> Self {
        Self { subagent: event.subagent.clone(), metadata: event.metadata().cloned(), ..Self::default() }
    }

    /// Adds metadata of a later event; says whether there was any.
    pub(super) fn merge(&mut self, metadata: Option<&Object>) -> bool {
        let Some(more) = metadata else { return false };
        self.metadata = Some(match &self.metadata {
            Some(known) => metadata::merged(known, more),
            None => more.clone(),
        });
        true
    }

    /// Whether a provider said something about the part, which is then worth having without any text.
    pub(super) fn is_told(&self) -> bool {
        provider_metadata(self.metadata.as_ref()).is_some()
    }

    /// The facts as `providerMetadata`, two levels deep as the client demands; `id` names the message under
    /// `key`. What other providers said, where the source was an AI SDK server, stands beside it. `None` if there
    /// is nothing to say.
    pub(super) fn provider_metadata(&self, key: &'static str, id: Option<&str>) -> Option<Json> {
        let (metadata, others) = match &self.metadata {
            Some(metadata) => apart(metadata),
            None => (None, Vec::new()),
        };
        let facts = encode::build_object(|w| {
            w.opt_str(key, id)
                .opt_str("subagentId", self.subagent.as_deref())
                .opt_str("name", self.name.as_deref())
                .opt_str("title", self.title.as_deref())
                .opt_str("encrypted", self.encrypted.as_deref());
            if let Some(metadata) = &metadata {
                w.json("metadata", &encode::sanitize(metadata.as_json()).0);
            }
        });
        let facts = (!facts.is_empty()).then(|| (AGENTWIRE.to_owned(), Json::from(facts)));
        let all: Vec<_> = others.into_iter().chain(facts).collect();
        let all = Object::from_entries(all.iter().map(|(key, value)| (key.as_str(), value.clone())));
        (!all.is_empty()).then(|| all.into())
    }
}

/// Metadata without what has a place of its own in the chunks, and what other providers said.
fn apart(metadata: &Object) -> (Option<Object>, Vec<(String, Json)>) {
    let others = provider_metadata(Some(metadata));
    let mut told = vec![native::PART, native::PROVIDER_EXECUTED, native::INPUT, native::INPUT_ERROR];
    if others.is_some() {
        told.push(native::PROVIDER_METADATA);
    }
    (metadata::without_native(metadata, &told), others.map(|it| it.entries()).unwrap_or_default())
}

/// What providers said about the thing that `metadata` belongs to, as far as a client accepts it.
pub(in super::super) fn provider_metadata(metadata: Option<&Object>) -> Option<Object> {
    let said = metadata::native(metadata)?.member(native::PROVIDER_METADATA).filter(is_provider_metadata)?;
    encode::sanitized(&said).into_object()
}

/// Our facts beside what providers said, as `providerMetadata`; `None` if nobody said anything.
pub(in super::super) fn with_agentwire(providers: Option<Object>, facts: Object) -> Option<Object> {
    let all = providers.unwrap_or_else(Object::empty).without(AGENTWIRE);
    let all = if facts.is_empty() { all } else { all.with(AGENTWIRE, facts.into()) };
    (!all.is_empty()).then_some(all)
}

/// A source's detail without what providers said about it, and that.
pub(in super::super) fn split_source_detail(detail: Option<&Object>) -> (Option<Json>, Option<Object>) {
    let Some(detail) = detail else { return (None, None) };
    let providers =
        detail.member(native::PROVIDER_METADATA).filter(is_provider_metadata).and_then(Json::into_object);
    let rest = if providers.is_some() { detail.without(native::PROVIDER_METADATA) } else { detail.clone() };
    ((!rest.is_empty()).then(|| rest.into()), providers)
}
