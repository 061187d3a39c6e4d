//! The nodes of a graph while they run: what becomes of them as steps and as subagents.
//!
//! A node is known by its run, or by its place (`outer:ID|inner:ID`) where the stream has no runs. Its name is
//! no identity: a fan-out runs many nodes of one name at once, and their steps then get numbers.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::{
    super::{
        namespace::{node_of, outer},
        options::Steps,
    },
    Cx,
    messages::Naming,
};
use crate::{
    event::{Body, Event, SubagentId, SubagentStarted, ToolCallId},
    json::Object,
};

/// How many nodes may run at once; beyond it the oldest are closed. Fan-outs of a few hundred are in use.
const MAX_NODES: usize = 2048;

#[derive(Debug, Default)]
pub(super) struct Nodes {
    running: IndexMap<Box<str>, Node>,
    /// The steps that are open, by owner and name.
    steps: HashSet<(Option<SubagentId>, Box<str>)>,
    /// How many nodes of a path run, so that the next one need not try all numbers.
    paths: HashMap<Box<str>, usize>,
    /// The graphs of which a task has ended since their last step began.
    stepping: HashSet<Box<str>>,
    /// The places of nested graphs that are shown as subagents, outer ones first.
    subagents: IndexMap<Box<str>, SubagentId>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: Box<str>,
    /// The place, if it has one.
    pub(super) ns: Box<str>,
    /// Which superstep.
    pub(super) number: Option<i64>,
    /// The calls that it was given to run.
    pub(super) given: Vec<ToolCallId>,
    /// The answer that asks for them, if it was never shown.
    pub(super) asked: Option<Box<RawValue>>,
    pub(super) hidden: bool,
    /// What its step says about it.
    pub(super) facts: Option<Object>,
    /// The step that stands for it, while it is open.
    step: Option<Box<str>>,
    owner: Option<SubagentId>,
}

impl Nodes {
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.running.get(key)
    }

    pub(super) fn is_running(&self, key: &str) -> bool {
        self.running.contains_key(key)
    }

    pub(super) fn has_open(&self) -> bool {
        !self.running.is_empty()
    }

    /// The names of the nodes that run, for a person.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.running.values().map(|node| &*node.name)
    }

    /// The running node of a name at a place, the oldest first.
    pub(super) fn find(&self, outer: &str, name: &str) -> Option<Box<str>> {
        let found = self.running.iter().find(|(_, node)| {
            let (node_outer, _) = node.ns.rsplit_once('|').unwrap_or(("", &node.ns));
            *node.name == *name && node_outer == outer
        });
        found.map(|(key, _)| key.clone())
    }

    /// The nodes at one level of an earlier superstep, which must be over.
    pub(super) fn before(&self, ns: &str, number: i64) -> Vec<Box<str>> {
        let level = |ns: &str| ns.rsplit_once('|').map(|(outer, _)| outer.to_owned());
        let outer = level(ns);
        let earlier = self.running.iter().filter(|(_, node)| {
            level(&node.ns) == outer && node.number.is_some_and(|earlier| earlier < number)
        });
        earlier.map(|(key, _)| key.clone()).collect()
    }

    /// The nodes that must be over when `next` starts: an earlier attempt at the same task and, in the
    /// outermost graph, all of an earlier superstep. A nested graph may run twice at once at one place.
    pub(super) fn outlived(&self, run: &str, next: &Node, outermost: bool) -> Vec<Box<str>> {
        let mut over = match next.number {
            Some(number) if outermost && !next.ns.is_empty() => self.before(&next.ns, number),
            _ => Vec::new(),
        };
        let same = |node: &Node| !node.ns.is_empty() && node.ns == next.ns && node.name == next.name;
        over.extend(
            self.running
                .iter()
                .filter(|(key, node)| ***key != *run && same(node))
                .map(|(key, _)| key.clone()),
        );
        over
    }

    /// A task of the graph at `ns` has ended.
    pub(super) fn ended(&mut self, ns: &str) {
        if self.stepping.len() < MAX_NODES {
            self.stepping.insert(ns.into());
        }
    }

    /// The graph at `ns` begins another step, if tasks of it have ended: hands back those that have not.
    pub(super) fn next_step(&mut self, ns: &str) -> Vec<Box<str>> {
        if !self.stepping.remove(ns) {
            return Vec::new();
        }
        self.running.iter().filter(|(_, node)| outer(&node.ns) == ns).map(|(key, _)| key.clone()).collect()
    }

    /// Whose events those at `ns` are.
    pub(super) fn owner(&mut self, cx: &mut Cx<'_>, ns: &str, agent: Option<&str>) -> Option<SubagentId> {
        if !cx.settings.subagents || !ns.contains('|') {
            return None;
        }
        let mut parent: Option<SubagentId> = None;
        for (at, _) in ns.match_indices('|') {
            let place = &ns[..at];
            if let Some(known) = self.subagents.get(place) {
                parent = Some(known.clone());
                continue;
            }
            if self.subagents.len() >= MAX_NODES {
                cx.tally.note("too many subagents", place);
                return parent;
            }
            let segment = place.rsplit('|').next().unwrap_or(place);
            let innermost = !ns[at + 1..].contains('|');
            let name = agent.filter(|_| innermost).unwrap_or_else(|| node_of(segment));
            let id = SubagentId::from(segment);
            // The call that a tool node was given alone is what started the graph inside it.
            let node = self.running.values().find(|node| *node.ns == *place);
            let call = node.and_then(|node| match &node.given[..] {
                [only] => Some(only.clone()),
                _ => None,
            });
            let started = SubagentStarted {
                name: name.into(),
                description: None,
                parent_subagent: parent.clone(),
                parent_message: call.as_ref().and_then(|call| Naming::holder(cx.client, call).cloned()),
                parent_call: call,
            };
            cx.emit(Event::new(Body::SubagentStarted(Box::new(started))).by(Some(id.clone())));
            self.subagents.insert(place.into(), id.clone());
            parent = Some(id);
        }
        parent
    }

    /// A node begins.
    pub(super) fn start(&mut self, cx: &mut Cx<'_>, key: &str, mut node: Node) {
        if self.running.len() >= MAX_NODES {
            cx.tally.note("too many nodes", &node.name);
            if let Some(oldest) = self.running.keys().next().cloned() {
                self.finish(cx, &oldest);
            }
        }
        node.owner = if node.hidden { None } else { self.owner(cx, &node.ns, None) };
        self.running.insert(key.into(), node);
        if cx.settings.steps == Steps::Nodes {
            self.show(cx, key);
        }
    }

    /// Shows the step of a node, if it is not shown yet.
    pub(super) fn show(&mut self, cx: &mut Cx<'_>, key: &str) {
        let Some(node) = self.running.get(key) else { return };
        if node.hidden || node.step.is_some() || cx.settings.steps == Steps::None {
            return;
        }
        let path = path(&node.ns, &node.name);
        let (owner, facts) = (node.owner.clone(), node.facts.clone());
        let mut step = (owner, Box::<str>::from(path.as_str()));
        let open = self.paths.entry(path.as_str().into()).or_default();
        *open += 1;
        let mut number = (*open).max(2);
        while self.steps.contains(&step) {
            step.1 = format!("{path}#{number}").into();
            number += 1;
        }
        self.steps.insert(step.clone());
        let (owner, name) = step;
        cx.emit(Event::new(Body::StepStarted { name: name.clone() }).by(owner).with_metadata(facts));
        if let Some(node) = self.running.get_mut(key) {
            node.step = Some(name);
        }
    }

    /// A node has ended: closes what is left open inside it, then the node.
    pub(super) fn finish(&mut self, cx: &mut Cx<'_>, key: &str) {
        let Some(node) = self.running.get(key) else { return };
        if !node.ns.is_empty() {
            let inside = format!("{}|", node.ns);
            let ns = node.ns.clone();
            let children: Vec<Box<str>> = self
                .running
                .iter()
                .rev()
                .filter(|(_, node)| node.ns.starts_with(&inside))
                .map(|(key, _)| key.clone())
                .collect();
            for child in children {
                self.close(cx, &child);
            }
            // A fan-out may run two nodes at one place, one after the other; the subagent is over with the first.
            while let Some(at) =
                self.subagents.keys().rposition(|place| **place == *ns || place.starts_with(&inside))
            {
                self.finish_subagent(cx, at);
            }
        }
        self.close(cx, key);
    }

    fn close(&mut self, cx: &mut Cx<'_>, key: &str) {
        if let Some(node) = self.running.shift_remove(key)
            && let Some(name) = node.step
        {
            self.steps.remove(&(node.owner.clone(), name.clone()));
            let path = path(&node.ns, &node.name);
            if let Some(open) = self.paths.get_mut(path.as_str()) {
                *open -= 1;
                if *open == 0 {
                    self.paths.remove(path.as_str());
                }
            }
            cx.emit(Event::new(Body::StepFinished { name }).by(node.owner));
        }
    }

    fn finish_subagent(&mut self, cx: &mut Cx<'_>, at: usize) {
        if let Some((_, id)) = self.subagents.shift_remove_index(at) {
            let body = Body::SubagentFinished { result: None, outcome: None };
            cx.emit(Event::new(body).by(Some(id)));
        }
    }

    /// The run has ended: closes all steps, the innermost first. Subagents that are left are handed back, because
    /// how they end depends on how the run ends.
    pub(super) fn finish_all(&mut self, cx: &mut Cx<'_>) -> Vec<SubagentId> {
        while let Some(last) = self.running.keys().next_back().cloned() {
            self.close(cx, &last);
        }
        self.stepping.clear();
        self.subagents.drain(..).rev().map(|(_, id)| id).collect()
    }
}

impl Node {
    pub(super) fn new(name: &str, ns: &str) -> Self {
        Self {
            name: name.into(),
            ns: ns.into(),
            number: None,
            given: Vec::new(),
            asked: None,
            hidden: false,
            facts: None,
            step: None,
            owner: None,
        }
    }
}

/// `outer/inner` for the place `outer:ID|inner:ID`.
pub(super) fn path(ns: &str, name: &str) -> String {
    let names: Vec<&str> = ns.split('|').filter(|segment| !is_count(segment)).map(node_of).collect();
    match names.last() {
        Some(last) if *last == name => names.join("/"),
        Some(_) => format!("{}/{name}", names.join("/")),
        None => name.to_owned(),
    }
}

/// Whether a segment of a place is no node: a graph that is called twice inside one node counts itself.
fn is_count(segment: &str) -> bool {
    segment.bytes().all(|byte| byte.is_ascii_digit())
}
