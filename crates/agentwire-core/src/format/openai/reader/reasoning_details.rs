//! `reasoning_details`: reasoning with signatures and encrypted data that the provider needs back unchanged.
//!
//! Pieces with the same type and index belong together. Signatures and encrypted reasoning are useless without the rest
//! of the list, so the whole list becomes the encrypted value of the message.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::{
    json::{Fields, Json, Object, Path, ReadResult, json},
    tally::Tally,
};

/// Maximum bytes of a list: four times the longest reasoning of current models in one turn.
const MAX_SIZE: usize = 1024 * 1024;
/// Maximum number of details; models switch between reasoning and text a few dozen times.
const MAX_COUNT: usize = 4096;

/// The list so far.
#[derive(Debug, Default)]
pub(super) struct ReasoningDetails {
    list: Vec<ReasoningDetail>,
    size: usize,
    /// True if the list contains a signature or encrypted data.
    is_sealed: bool,
    /// True if the list exceeded a limit and was dropped.
    is_overlong: bool,
}

#[derive(Debug)]
struct ReasoningDetail {
    kind: Box<str>,
    index: Option<Box<str>>,
    /// The name and value of the streamed text member.
    text: Option<(&'static str, String)>,
    others: Vec<(&'static str, Json)>,
}

impl ReasoningDetails {
    /// Adds one element and returns its plain text.
    pub(super) fn push<'a>(
        &mut self,
        raw: &'a RawValue,
        path: Path<'_>,
        tally: &mut Tally,
    ) -> ReadResult<Option<Cow<'a, str>>> {
        let mut fields = Fields::of(raw, path)?;
        let kind: Box<str> = fields.boxed("type", tally)?.unwrap_or_default();
        let key = match &*kind {
            "reasoning.text" => "text",
            "reasoning.summary" => "summary",
            "reasoning.encrypted" => "data",
            _ => {
                tally.note("unknown kind of reasoning", &kind);
                return Ok(None);
            }
        };
        let text = match fields.take_unless_null(key) {
            Some(raw) => Some(crate::json::text(raw, Path::Key(&path, key), tally)?),
            None => None,
        };
        let index = fields.take_unless_null("index").map(|raw| raw.get().into());
        let mut others = Vec::new();
        for name in ["id", "format", "signature"] {
            if let Some(raw) = fields.take_unless_null(name) {
                others.push((name, json(raw, Path::Key(&path, name), tally)?));
            }
        }
        fields.rest("reasoning_details", tally)?;
        self.is_sealed |= key == "data" || others.iter().any(|(name, _)| *name == "signature");
        self.size += raw.get().len();
        if self.size > MAX_SIZE || self.list.len() >= MAX_COUNT {
            self.list.clear();
            self.is_overlong = true;
        }
        let plain = text.clone().filter(|text| key != "data" && !text.is_empty());
        if self.is_overlong {
            return Ok(plain);
        }
        match self.list.last_mut() {
            Some(last) if key != "data" && last.kind == kind && last.index == index => {
                if let (Some((_, known)), Some(text)) = (&mut last.text, &text) {
                    known.push_str(text);
                } else if let Some(text) = text {
                    last.text = Some((key, text.into_owned()));
                }
                for (name, value) in others {
                    last.others.retain(|(known, _)| *known != name);
                    last.others.push((name, value));
                }
            }
            _ => {
                let text = text.map(|text| (key, text.into_owned()));
                self.list.push(ReasoningDetail { kind, index, text, others });
            }
        }
        Ok(plain)
    }

    /// Takes the list as JSON, if the provider needs it back.
    pub(super) fn take_encoded(&mut self, tally: &mut Tally) -> Option<String> {
        let Self { list, is_sealed, is_overlong, .. } = std::mem::take(self);
        if is_overlong && is_sealed {
            tally.note("reasoning cut off", "its details are too long to be sent back");
        }
        if !is_sealed || list.is_empty() {
            return None;
        }
        let objects = list.iter().map(|detail| {
            let text = detail.text.as_ref().map(|(key, text)| (*key, Json::string(text)));
            let index = detail.index.as_deref().and_then(|index| Json::parse(index).ok());
            let members = [("type", Json::string(&detail.kind))].into_iter().chain(text);
            let members = members.chain(detail.others.iter().cloned());
            Object::from_entries(members.chain(index.map(|index| ("index", index))))
        });
        let objects: Vec<String> = objects.map(|object| object.get().to_owned()).collect();
        Some(format!("[{}]", objects.join(",")))
    }
}
