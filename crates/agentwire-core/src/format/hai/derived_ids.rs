//! Ids for items that have none in HAI.
//!
//! A HAI message contains text, thinking and any number of other outputs, and its id may be reused after its
//! end. In the canonical model each of these is an item with an id. The reader derives the ids here, from the
//! id of the message and a count. The writer counts the frames that it writes in the same way, so it can predict
//! the id that a reader will derive, and writes the real one (in `agui`) only where it differs.

use std::collections::{HashMap, HashSet};

use crate::{
    event::MessageId,
    json::{Json, Object},
    patch::{Op, Patch, PatchOp, escape_token},
};

/// Limit of counted messages; beyond it the table is cleared, like that of the interner. A run rarely has a
/// hundred.
const MAX_MESSAGES: usize = 4096;

/// Limit of distinct block ids per message; beyond it each output is counted.
const MAX_BLOCK_IDS: usize = 4096;

/// Limits of `toolCallShow` lists that can be updated, and of the tools in one of them. The reference client
/// renders all of them, so real streams stay far below.
const MAX_TOOL_LISTS: usize = 256;
const MAX_TOOLS: usize = 4096;

/// Counts of the items in each message.
#[derive(Debug, Default)]
pub(crate) struct DerivedIds {
    messages: HashMap<Box<str>, MessageCounts>,
    tool_lists: HashMap<String, ToolList>,
}

#[derive(Debug, Default)]
struct MessageCounts {
    starts: u32,
    texts: u32,
    thoughts: u32,
    blocks: u32,
    collaborations: u32,
    block_ids: HashSet<Box<str>>,
}

/// A `toolCallShow` list as displayed.
#[derive(Clone, Debug)]
struct ToolList {
    activity: MessageId,
    /// All values except the tools, by path in the content of the activity.
    members: Vec<(String, Json)>,
    tools: Vec<String>,
}

/// The canonical form of an output that is neither text nor thinking.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BlockTarget {
    /// A new block.
    New(MessageId),
    /// A change to an existing tool list.
    Update(MessageId, Patch),
}

impl DerivedIds {
    fn counts(&mut self, message: &str) -> &mut MessageCounts {
        if !self.messages.contains_key(message) {
            if self.messages.len() >= MAX_MESSAGES {
                self.messages.clear();
            }
            self.messages.insert(message.into(), MessageCounts::default());
        }
        self.messages.get_mut(message).expect("inserted above")
    }

    fn count(&self, message: &str, of: impl Fn(&MessageCounts) -> u32) -> u32 {
        self.messages.get(message).map_or(0, of)
    }

    /// Counts the start of a message.
    pub(crate) fn note_start(&mut self, message: &str) {
        self.counts(message).starts += 1;
    }

    /// Whether the message was ever started.
    pub(crate) fn is_used(&self, message: &str) -> bool {
        self.count(message, |counts| counts.starts) > 0
    }

    /// The id of the next text in a message. Reuse of the message id yields a second text.
    pub(crate) fn next_text(&self, message: &str) -> MessageId {
        match self.count(message, |counts| counts.texts) {
            0 => message.into(),
            texts => format!("{message}#{}", texts + 1).into(),
        }
    }

    /// Counts a started text.
    pub(crate) fn count_text(&mut self, message: &str) {
        self.counts(message).texts += 1;
    }

    /// The id of the next thinking span in a message.
    pub(crate) fn next_thought(&self, message: &str) -> MessageId {
        format!("{message}:thinking:{}", self.count(message, |counts| counts.thoughts)).into()
    }

    /// Counts a started thinking span.
    pub(crate) fn count_thought(&mut self, message: &str) {
        self.counts(message).thoughts += 1;
    }

    /// The id of the next collaboration with this message id.
    pub(crate) fn next_collaboration(&self, message: &str) -> MessageId {
        format!("{message}:collaboration:{}", self.count(message, |counts| counts.collaborations)).into()
    }

    /// Counts a started collaboration.
    pub(crate) fn count_collaboration(&mut self, message: &str) {
        self.counts(message).collaborations += 1;
    }

    /// The canonical form of the next output of a message.
    pub(crate) fn next_block(
        &self,
        message: &str,
        output: &Object,
        placement: PlacementRef<'_>,
    ) -> BlockTarget {
        if let Some(output_list) = ToolListOutput::of(output, placement)
            && let Some(list) = self.tool_lists.get(&output_list.id)
            && list.tools.len() + output_list.tools.len() <= MAX_TOOLS
        {
            return BlockTarget::Update(list.activity.clone(), list.patch(&output_list));
        }
        let count = self.count(message, |counts| counts.blocks);
        let is_taken = |id: &str| {
            self.messages.get(message).is_some_and(|counts| {
                counts.block_ids.contains(id) || counts.block_ids.len() >= MAX_BLOCK_IDS
            })
        };
        BlockTarget::New(match placement.block_id {
            Some(id) if is_taken(id) || ends_in_number(id) => format!("{message}:{id}:{count}").into(),
            Some(id) => format!("{message}:{id}").into(),
            None => format!("{message}:{count}").into(),
        })
    }

    /// Counts a written or read output.
    pub(crate) fn count_block(
        &mut self,
        message: &str,
        output: &Object,
        placement: PlacementRef<'_>,
        target: &BlockTarget,
    ) {
        let output_list = ToolListOutput::of(output, placement);
        match target {
            BlockTarget::Update(..) => {
                if let Some(output_list) = output_list
                    && let Some(list) = self.tool_lists.get_mut(&output_list.id)
                {
                    list.apply(&output_list);
                }
            }
            BlockTarget::New(id) => {
                let counts = self.counts(message);
                counts.blocks += 1;
                if let Some(block) = placement.block_id
                    && counts.block_ids.len() < MAX_BLOCK_IDS
                {
                    counts.block_ids.insert(block.into());
                }
                if let Some(output_list) = output_list
                    && self.tool_lists.len() < MAX_TOOL_LISTS
                {
                    let mut list = ToolList { activity: id.clone(), members: Vec::new(), tools: Vec::new() };
                    list.apply(&output_list);
                    self.tool_lists.insert(output_list.id, list);
                }
            }
        }
    }
}

/// Whether `id` could be confused with an id that ends in a count.
fn ends_in_number(id: &str) -> bool {
    let last = id.rsplit(':').next().unwrap_or(id);
    !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit())
}

/// The placement of an output, as far as ids depend on it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlacementRef<'p> {
    pub(crate) layout: Option<&'p Json>,
    pub(crate) block_id: Option<&'p str>,
    pub(crate) style: Option<&'p Json>,
}

/// A parsed `toolCallShow` output, which updates the list of the same `id` tool by tool.
struct ToolListOutput {
    id: String,
    members: Vec<(String, Json)>,
    tools: Vec<(String, Json)>,
}

impl ToolListOutput {
    fn of(output: &Object, placement: PlacementRef<'_>) -> Option<Self> {
        // Cheap test first: few outputs are of this type.
        if !output.get().contains("\"toolCallShow\"") || output.get_str("type")? != "toolCallShow" {
            return None;
        }
        let id = output.get_str("id")?;
        let mut members = Vec::new();
        let mut tools: Option<Vec<(String, Json)>> = None;
        for (key, value) in output.entries() {
            match key.as_str() {
                "type" | "id" => {}
                // These names have another meaning in the activity.
                "layout" | "style" => return None,
                "data" => {
                    for (key, value) in value.into_object()?.entries() {
                        if key == "tools" {
                            let tools = tools.insert(Vec::new());
                            for tool in value.elements()? {
                                let id = tool.clone().into_object()?.get_str("id")?;
                                if tools.len() >= MAX_TOOLS || tools.iter().any(|(other, _)| *other == id) {
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
        let placed = [("/layout", placement.layout), ("/style", placement.style)];
        members
            .extend(placed.into_iter().filter_map(|(path, value)| Some((path.to_owned(), value?.clone()))));
        Some(Self { id, members, tools: tools? })
    }
}

impl ToolList {
    /// The patch that adds `next` to the list.
    fn patch(&self, next: &ToolListOutput) -> Patch {
        let mut operations = Vec::new();
        for (path, value) in &next.members {
            match self.members.iter().find(|(other, _)| other == path) {
                Some((_, old)) if old == value => {}
                Some(_) => operations.push(PatchOp::replace(path.as_str(), value.clone())),
                None => operations.push(PatchOp::with_value(Op::Add, path.as_str(), value.clone())),
            }
        }
        let mut tools: Vec<&str> = self.tools.iter().map(String::as_str).collect();
        for (id, tool) in &next.tools {
            match tools.iter().position(|other| other == id) {
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

    fn apply(&mut self, next: &ToolListOutput) {
        for (path, value) in &next.members {
            match self.members.iter_mut().find(|(other, _)| other == path) {
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

    fn count_next(derived_ids: &mut DerivedIds, output: &str, block_id: Option<&str>) -> BlockTarget {
        let (output, placement) = (object(output), PlacementRef { block_id, ..PlacementRef::default() });
        let target = derived_ids.next_block("m", &output, placement);
        derived_ids.count_block("m", &output, placement, &target);
        target
    }

    #[test]
    fn every_block_has_a_unique_id() {
        let derived_ids = &mut DerivedIds::default();
        let mut ids = Vec::new();
        for block in [None, Some("b"), Some("b"), Some("1"), Some("b:2"), None, Some("0")] {
            match count_next(derived_ids, r#"{"type":"icon"}"#, block) {
                BlockTarget::New(id) => ids.push(id.to_string()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ids, ["m:0", "m:b", "m:b:2", "m:1:3", "m:b:2:4", "m:5", "m:0:6"]);
    }

    #[test]
    fn tool_list_is_updated_tool_by_tool() {
        let derived_ids = &mut DerivedIds::default();
        let list = |title: &str, tools: &str| {
            format!(r#"{{"type":"toolCallShow","id":"s","data":{{"title":"{title}","tools":[{tools}]}}}}"#)
        };
        let first = count_next(derived_ids, &list("T", r#"{"id":"a","progress":1}"#), None);
        assert_eq!(first, BlockTarget::New("m:0".into()));
        let next = count_next(derived_ids, &list("U", r#"{"id":"a","progress":2},{"id":"b"}"#), None);
        let wanted = Patch(vec![
            PatchOp::replace("/data/title", Json::string("U")),
            PatchOp::replace("/data/tools/0", object(r#"{"id":"a","progress":2}"#).into()),
            PatchOp::add("/data/tools/-", object(r#"{"id":"b"}"#).into()),
        ]);
        assert_eq!(next, BlockTarget::Update("m:0".into(), wanted));
        let last = count_next(derived_ids, &list("U", r#"{"id":"b","progress":1}"#), None);
        let wanted =
            Patch(vec![PatchOp::replace("/data/tools/1", object(r#"{"id":"b","progress":1}"#).into())]);
        assert_eq!(last, BlockTarget::Update("m:0".into(), wanted));
    }

    #[test]
    fn reused_message_id_yields_another_text() {
        let derived_ids = &mut DerivedIds::default();
        assert_eq!(&*derived_ids.next_text("m"), "m");
        derived_ids.count_text("m");
        assert_eq!(&*derived_ids.next_text("m"), "m#2");
    }
}
