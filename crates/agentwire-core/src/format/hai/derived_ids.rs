//! Names for what HAI does not name.
//!
//! A HAI message holds text, thinking and any number of other outputs, and its id may come back after its end.
//! In the canonical model each of these is a thing of its own and needs an id. The reader derives them here,
//! from the message's id and a count. The writer keeps the same ledger of the frames that it writes, so it
//! knows which id a reader will derive, and says the real one (in `agui`) only where that is another.

use std::collections::{HashMap, HashSet};

use crate::{
    event::MessageId,
    json::{Json, Object},
    patch::{Op, Patch, PatchOp, escape_token},
};

/// Messages that are counted at once; the table starts anew beyond that, as that of the interner does. A run
/// rarely has a hundred.
const MAX_MESSAGES: usize = 4096;

/// Block ids of one message that are told apart; beyond that, each output is counted.
const MAX_BLOCK_IDS: usize = 4096;

/// Lists of tool calls (`toolCallShow`) that can be added to, and tools in one of them. The reference client
/// draws them all, so nobody sends this many.
const MAX_SHOWS: usize = 256;
const MAX_TOOLS: usize = 4096;

/// What has been counted so far.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    messages: HashMap<Box<str>, Counts>,
    shows: HashMap<String, Show>,
}

#[derive(Debug, Default)]
struct Counts {
    starts: u32,
    texts: u32,
    thoughts: u32,
    blocks: u32,
    collaborations: u32,
    block_ids: HashSet<Box<str>>,
}

/// A list of tool calls on the screen.
#[derive(Clone, Debug)]
struct Show {
    activity: MessageId,
    /// Everything but the tools, as paths into the activity's content.
    members: Vec<(String, Json)>,
    tools: Vec<String>,
}

/// What an output that is neither text nor thinking is to the canonical model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Drawn {
    /// Something new.
    Block(MessageId),
    /// More of a list of tool calls.
    More(MessageId, Patch),
}

impl Ledger {
    fn counts(&mut self, message: &str) -> &mut Counts {
        if !self.messages.contains_key(message) {
            if self.messages.len() >= MAX_MESSAGES {
                self.messages.clear();
            }
            self.messages.insert(message.into(), Counts::default());
        }
        self.messages.get_mut(message).expect("it was made if it was not there")
    }

    fn count(&self, message: &str, of: impl Fn(&Counts) -> u32) -> u32 {
        self.messages.get(message).map_or(0, of)
    }

    /// A message opens.
    pub(crate) fn start(&mut self, message: &str) {
        self.counts(message).starts += 1;
    }

    /// Whether a message was ever opened.
    pub(crate) fn is_used(&self, message: &str) -> bool {
        self.count(message, |counts| counts.starts) > 0
    }

    /// The id of the next text in a message. A second use of the message's id makes a second text.
    pub(crate) fn text(&self, message: &str) -> MessageId {
        match self.count(message, |counts| counts.texts) {
            0 => message.into(),
            texts => format!("{message}#{}", texts + 1).into(),
        }
    }

    /// That text has begun.
    pub(crate) fn took_text(&mut self, message: &str) {
        self.counts(message).texts += 1;
    }

    /// The id of the next thought in a message.
    pub(crate) fn thought(&self, message: &str) -> MessageId {
        format!("{message}:thinking:{}", self.count(message, |counts| counts.thoughts)).into()
    }

    /// That thought has begun.
    pub(crate) fn took_thought(&mut self, message: &str) {
        self.counts(message).thoughts += 1;
    }

    /// The id of the next hand-over under a message's id.
    pub(crate) fn collaboration(&self, message: &str) -> MessageId {
        format!("{message}:collaboration:{}", self.count(message, |counts| counts.collaborations)).into()
    }

    /// That hand-over has begun.
    pub(crate) fn took_collaboration(&mut self, message: &str) {
        self.counts(message).collaborations += 1;
    }

    /// What an output of a message will be.
    pub(crate) fn drawn(&self, message: &str, output: &Object, place: Placed<'_>) -> Drawn {
        if let Some(shown) = Shown::of(output, place)
            && let Some(show) = self.shows.get(&shown.id)
            && show.tools.len() + shown.tools.len() <= MAX_TOOLS
        {
            return Drawn::More(show.activity.clone(), show.patch(&shown));
        }
        let count = self.count(message, |counts| counts.blocks);
        let known = |id: &str| {
            self.messages.get(message).is_some_and(|counts| {
                counts.block_ids.contains(id) || counts.block_ids.len() >= MAX_BLOCK_IDS
            })
        };
        Drawn::Block(match place.block_id {
            Some(id) if known(id) || is_countlike(id) => format!("{message}:{id}:{count}").into(),
            Some(id) => format!("{message}:{id}").into(),
            None => format!("{message}:{count}").into(),
        })
    }

    /// That output has been drawn.
    pub(crate) fn took_drawn(&mut self, message: &str, output: &Object, place: Placed<'_>, drawn: &Drawn) {
        let shown = Shown::of(output, place);
        match drawn {
            Drawn::More(..) => {
                if let Some(shown) = shown
                    && let Some(show) = self.shows.get_mut(&shown.id)
                {
                    show.take(&shown);
                }
            }
            Drawn::Block(id) => {
                let counts = self.counts(message);
                counts.blocks += 1;
                if let Some(block) = place.block_id
                    && counts.block_ids.len() < MAX_BLOCK_IDS
                {
                    counts.block_ids.insert(block.into());
                }
                if let Some(shown) = shown
                    && self.shows.len() < MAX_SHOWS
                {
                    let mut show = Show { activity: id.clone(), members: Vec::new(), tools: Vec::new() };
                    show.take(&shown);
                    self.shows.insert(shown.id, show);
                }
            }
        }
    }
}

/// Whether `id` could be mistaken for one that ends in a count.
fn is_countlike(id: &str) -> bool {
    let last = id.rsplit(':').next().unwrap_or(id);
    !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit())
}

/// Where an output is placed, as far as names depend on it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Placed<'p> {
    pub(crate) layout: Option<&'p Json>,
    pub(crate) block_id: Option<&'p str>,
    pub(crate) style: Option<&'p Json>,
}

/// A `toolCallShow` output taken apart: to be added to the one of the same `id`, tool by tool.
struct Shown {
    id: String,
    members: Vec<(String, Json)>,
    tools: Vec<(String, Json)>,
}

impl Shown {
    fn of(output: &Object, place: Placed<'_>) -> Option<Self> {
        // A quick look first: hardly any output is one of these.
        if !output.get().contains("\"toolCallShow\"") || output.get_str("type")? != "toolCallShow" {
            return None;
        }
        let id = output.get_str("id")?;
        let mut members = Vec::new();
        let mut tools: Option<Vec<(String, Json)>> = None;
        for (key, value) in output.entries() {
            match key.as_str() {
                "type" | "id" => {}
                // The activity has these names for something else.
                "layout" | "style" => return None,
                "data" => {
                    for (key, value) in value.into_object()?.entries() {
                        if key == "tools" {
                            let tools = tools.insert(Vec::new());
                            for tool in value.elements()? {
                                let id = tool.clone().into_object()?.get_str("id")?;
                                if tools.len() >= MAX_TOOLS || tools.iter().any(|(known, _)| *known == id) {
                                    return None;
                                }
                                tools.push((id, tool));
                            }
                        } else {
                            members.push((format!("/data/{}", escape_token(&key)), value));
                        }
                    }
                }
                _ => members.push((format!("/{}", escape_token(&key)), value)),
            }
        }
        let placed = [("/layout", place.layout), ("/style", place.style)];
        members
            .extend(placed.into_iter().filter_map(|(path, value)| Some((path.to_owned(), value?.clone()))));
        Some(Self { id, members, tools: tools? })
    }
}

impl Show {
    /// What must change so that the list shows `next` too.
    fn patch(&self, next: &Shown) -> Patch {
        let mut operations = Vec::new();
        for (path, value) in &next.members {
            match self.members.iter().find(|(known, _)| known == path) {
                Some((_, old)) if old == value => {}
                Some(_) => operations.push(PatchOp::replace(path.as_str(), value.clone())),
                None => operations.push(PatchOp::with_value(Op::Add, path.as_str(), value.clone())),
            }
        }
        let mut tools: Vec<&str> = self.tools.iter().map(String::as_str).collect();
        for (id, tool) in &next.tools {
            match tools.iter().position(|known| known == id) {
                Some(index) => {
                    operations.push(PatchOp::replace(format!("/data/tools/{index}"), tool.clone()));
                }
                None => {
                    tools.push(id);
                    operations.push(PatchOp::add("/data/tools/-", tool.clone()));
                }
            }
        }
        Patch(operations)
    }

    fn take(&mut self, next: &Shown) {
        for (path, value) in &next.members {
            match self.members.iter_mut().find(|(known, _)| known == path) {
                Some((_, old)) => *old = value.clone(),
                None => self.members.push((path.clone(), value.clone())),
            }
        }
        for (id, _) in &next.tools {
            if !self.tools.contains(id) {
                self.tools.push(id.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Object {
        Json::parse(text).unwrap().into_object().unwrap()
    }

    fn draw(ledger: &mut Ledger, output: &str, block_id: Option<&str>) -> Drawn {
        let (output, place) = (object(output), Placed { block_id, ..Placed::default() });
        let drawn = ledger.drawn("m", &output, place);
        ledger.took_drawn("m", &output, place, &drawn);
        drawn
    }

    #[test]
    fn every_block_has_an_id_of_its_own() {
        let ledger = &mut Ledger::default();
        let mut ids = Vec::new();
        for block in [None, Some("b"), Some("b"), Some("1"), Some("b:2"), None, Some("0")] {
            match draw(ledger, r#"{"type":"icon"}"#, block) {
                Drawn::Block(id) => ids.push(id.to_string()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ids, ["m:0", "m:b", "m:b:2", "m:1:3", "m:b:2:4", "m:5", "m:0:6"]);
    }

    #[test]
    fn a_list_of_tools_grows_by_tool() {
        let ledger = &mut Ledger::default();
        let show = |title: &str, tools: &str| {
            format!(r#"{{"type":"toolCallShow","id":"s","data":{{"title":"{title}","tools":[{tools}]}}}}"#)
        };
        let first = draw(ledger, &show("T", r#"{"id":"a","progress":1}"#), None);
        assert_eq!(first, Drawn::Block("m:0".into()));
        let next = draw(ledger, &show("U", r#"{"id":"a","progress":2},{"id":"b"}"#), None);
        let wanted = Patch(vec![
            PatchOp::replace("/data/title", Json::string("U")),
            PatchOp::replace("/data/tools/0", object(r#"{"id":"a","progress":2}"#).into()),
            PatchOp::add("/data/tools/-", object(r#"{"id":"b"}"#).into()),
        ]);
        assert_eq!(next, Drawn::More("m:0".into(), wanted));
        let last = draw(ledger, &show("U", r#"{"id":"b","progress":1}"#), None);
        let wanted =
            Patch(vec![PatchOp::replace("/data/tools/1", object(r#"{"id":"b","progress":1}"#).into())]);
        assert_eq!(last, Drawn::More("m:0".into(), wanted));
    }

    #[test]
    fn a_reused_message_id_makes_another_text() {
        let ledger = &mut Ledger::default();
        assert_eq!(&*ledger.text("m"), "m");
        ledger.took_text("m");
        assert_eq!(&*ledger.text("m"), "m#2");
    }
}
