//! What is known about a part beside its text: travels as the part's provider metadata.
//!
//! A client keeps `providerMetadata` with the part and sends it back with the history. That is how a later
//! request can name the very message ids that the agent used, and how signatures survive.

use super::super::wire::{self, AGENTWIRE, OWN_PROVIDERS, own_call};
use crate::{
    event::{Event, SubagentId},
    json::{Json, Object},
};

/// Facts about a part.
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
            Some(known) => wire::merged(known, more),
            None => more.clone(),
        });
        true
    }

    /// Whether a provider said something about the part, which is then worth having without any text.
    pub(super) fn is_told(&self) -> bool {
        wire::providers(self.metadata.as_ref()).is_some()
    }

    /// The facts as `providerMetadata`, two levels deep as the client demands; `id` names the message under
    /// `key`. What other providers said, where the source was an AI SDK server, stands beside it. `None` if there
    /// is nothing to say.
    pub(super) fn provider_metadata(&self, key: &'static str, id: Option<&str>) -> Option<Json> {
        let (metadata, others) = match &self.metadata {
            Some(metadata) => apart(metadata),
            None => (None, Vec::new()),
        };
        let facts = wire::object(|w| {
            w.opt_str(key, id)
                .opt_str("subagentId", self.subagent.as_deref())
                .opt_str("name", self.name.as_deref())
                .opt_str("title", self.title.as_deref())
                .opt_str("encrypted", self.encrypted.as_deref());
            if let Some(metadata) = &metadata {
                w.json("metadata", &wire::safe(metadata.as_json()).0);
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
    let others = wire::providers(Some(metadata));
    let mut told = vec![own_call::PART, own_call::REMOTE, own_call::INPUT, own_call::INPUT_ERROR];
    if others.is_some() {
        told.push(OWN_PROVIDERS);
    }
    (wire::without_own(metadata, &told), others.map(|it| it.entries()).unwrap_or_default())
}
