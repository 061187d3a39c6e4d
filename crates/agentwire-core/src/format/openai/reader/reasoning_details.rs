//! `reasoning_details`: thoughts with what the provider must get back unchanged.
//!
//! They come in pieces that belong together by type and index. Signatures and encrypted thoughts are worth
//! nothing without the rest of the list, so the list travels as a whole, as the encrypted value of the message.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::{
    json::{Fields, Json, Object, Path, ReadError, json},
    tally::Tally,
};

/// How much of a list is held: four times what today's models think in one turn.
const MAX_SIZE: usize = 1024 * 1024;
/// How many details a list may have; models change between thought and speech some dozen times.
const MAX_COUNT: usize = 4096;

/// The list so far.
#[derive(Debug, Default)]
pub(super) struct Details {
    list: Vec<Detail>,
    size: usize,
    /// Something in it must go back to the provider.
    sealed: bool,
    overlong: bool,
}

#[derive(Debug)]
struct Detail {
    kind: Box<str>,
    index: Option<Box<str>>,
    /// The member that grows, and its text.
    text: Option<(&'static str, String)>,
    others: Vec<(&'static str, Json)>,
}

impl Details {
    /// Takes in one element; returns what it says in plain words.
    pub(super) fn push<'a>(
        &mut self,
        raw: &'a RawValue,
        path: Path<'_>,
        tally: &mut Tally,
    ) -> Result<Option<Cow<'a, str>>, ReadError> {
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
        let said = match fields.take_unless_null(key) {
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
        self.sealed |= key == "data" || others.iter().any(|(name, _)| *name == "signature");
        self.size += raw.get().len();
        if self.size > MAX_SIZE || self.list.len() >= MAX_COUNT {
            self.list.clear();
            self.overlong = true;
        }
        let plain = said.clone().filter(|said| key != "data" && !said.is_empty());
        if self.overlong {
            return Ok(plain);
        }
        match self.list.last_mut() {
            Some(last) if key != "data" && last.kind == kind && last.index == index => {
                if let (Some((_, text)), Some(said)) = (&mut last.text, &said) {
                    text.push_str(said);
                } else if let Some(said) = said {
                    last.text = Some((key, said.into_owned()));
                }
                for (name, value) in others {
                    last.others.retain(|(held, _)| *held != name);
                    last.others.push((name, value));
                }
            }
            _ => {
                let text = said.map(|said| (key, said.into_owned()));
                self.list.push(Detail { kind, index, text, others });
            }
        }
        Ok(plain)
    }

    /// The list, if something in it must go back.
    pub(super) fn take(&mut self, tally: &mut Tally) -> Option<String> {
        let Self { list, sealed, overlong, .. } = std::mem::take(self);
        if overlong && sealed {
            tally.note("reasoning cut off", "its details are too long to be sent back");
        }
        if !sealed || list.is_empty() {
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
