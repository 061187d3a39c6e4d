//! JSON Schema: reads a schema once, then checks values against it.
//!
//! Drafts 4, 6, 7, 2019-09 and 2020-12. As in the specification, `format` is checked up to draft 7 and is only a note
//! after it, and references lead to places of the same document: nothing is fetched. Three rare things are simpler than
//! in the specification: a `$schema` below the root is ignored, the published schemas of JSON Schema itself cannot be
//! referred to, and the part of a host name after `xn--` is not decoded.

mod check;
mod dialect;
mod equal;
mod failure;
mod format;
mod pattern;
mod resources;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use serde_json::{Map, Value};

use self::{dialect::Draft, pattern::Pattern, resources::Resources};

/// A schema that was read.
pub(super) struct Schema<'v> {
    draft: Draft,
    root: &'v Value,
    resources: Resources<'v>,
    /// Schemas that can be reached from the root, by their address.
    nodes: HashMap<*const Value, Node<'v>>,
    patterns: HashMap<&'v str, Pattern>,
}

/// A schema that is an object.
#[derive(Default)]
struct Node<'v> {
    /// The place of its resource.
    resource: usize,
    /// The keywords that apply, those that cost least first.
    keywords: Vec<(&'v str, &'v Value)>,
    /// The schema that a reference leads to, by its keyword.
    targets: Vec<(&'v str, &'v Value)>,
    /// It asks which members or elements no other keyword has looked at.
    is_tracking: bool,
}

impl<'v> Schema<'v> {
    /// Reads a schema. `None` if it is not valid in its draft, or refers to something outside of it.
    pub(super) fn new(root: &'v Value) -> Option<Self> {
        let draft = Draft::of(root)?;
        if !dialect::is_valid(draft, root) {
            return None;
        }
        let resources = Resources::new(draft, root)?;
        let mut schema = Self { draft, root, resources, nodes: HashMap::new(), patterns: HashMap::new() };
        schema.read()?;
        Some(schema)
    }

    /// Reads the schemas that can be reached. Without recursion: a chain of references may be long.
    fn read(&mut self) -> Option<()> {
        let has_branch = |it: &Map<String, Value>| it.contains_key("then") || it.contains_key("else");
        let is_used =
            |schema: &Self, it: &Map<String, Value>| schema.resources.has_tracking || has_branch(it);
        let mut open = vec![(self.root, 0)];
        while let Some((schema, outer)) = open.pop() {
            let Value::Object(members) = schema else { continue };
            let address = std::ptr::from_ref(schema);
            if self.nodes.contains_key(&address) {
                continue;
            }
            let resource = self.resources.of(schema).unwrap_or(outer);
            let mut node = Node { resource, ..Node::default() };
            let is_alone = self.draft.ignores_siblings() && members.contains_key("$ref");
            for (keyword, member) in members {
                if (is_alone && keyword != "$ref") || self.draft.rank(keyword).is_none() {
                    continue;
                }
                node.keywords.push((keyword, member));
                match keyword.as_str() {
                    "$ref" | "$dynamicRef" | "$recursiveRef" => {
                        // Its only value is the root.
                        let reference = if keyword == "$recursiveRef" { "#" } else { member.as_str()? };
                        let (target, resource) = self.resources.find(reference, resource)?;
                        node.targets.push((keyword, target));
                        open.push((target, resource));
                        if keyword != "$ref" {
                            open.extend(self.others(keyword, member.as_str()?));
                        }
                    }
                    "pattern" => self.read_pattern(member.as_str()?)?,
                    "unevaluatedItems" | "unevaluatedProperties" => node.is_tracking = true,
                    "then" | "else" if !members.contains_key("if") => continue,
                    "if" if !is_used(self, members) => continue,
                    "additionalItems" if !members.get("items").is_some_and(Value::is_array) => continue,
                    _ => {}
                }
                if keyword == "patternProperties" {
                    for pattern in member.as_object()?.keys() {
                        self.read_pattern(pattern)?;
                    }
                }
                open.extend(dialect::schemas_in(keyword, member).map(|below| (below, resource)));
            }
            let draft = self.draft;
            node.keywords.sort_by_key(|(keyword, _)| draft.rank(keyword));
            self.nodes.insert(address, node);
        }
        Some(())
    }

    /// The schemas that a dynamic reference may lead to, besides its target.
    fn others(&self, keyword: &str, reference: &str) -> Vec<(&'v Value, usize)> {
        let roots = self.resources.roots();
        match reference.split_once('#').filter(|_| keyword == "$dynamicRef") {
            Some((_, anchor)) => {
                roots.filter_map(|(_, place)| Some((self.resources.dynamic(place, anchor)?, place))).collect()
            }
            None => roots.collect(),
        }
    }

    fn read_pattern(&mut self, pattern: &'v str) -> Option<()> {
        if !self.patterns.contains_key(pattern) {
            self.patterns.insert(pattern, Pattern::new(pattern)?);
        }
        Some(())
    }
}
