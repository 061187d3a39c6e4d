//! The running nodes of a graph, as steps and as subagents.
//!
//! A node run is identified by its run id, or by its namespace (`outer:ID|inner:ID`) if the stream has no run ids.
//! The name is not unique: a fan-out runs several nodes of one name concurrently, and their steps are numbered.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::{
    super::{
        namespace::{node_of, outer},
        options::StepMode,
    },
    ReaderContext,
    messages::ShownIds,
    output_rules::OutputRules,
};
use crate::{
    event::{Body, Event, SubagentId, SubagentStarted, ToolCallId},
    json::{Json, Object},
};

/// Bound on concurrent nodes; beyond it the oldest are closed. Fan-outs of a few hundred exist.
const MAX_NODES: usize = 2048;

/// All running nodes.
#[derive(Debug, Default)]
pub(super) struct NodeRuns {
    running: IndexMap<Box<str>, NodeRun>,
    /// The open steps, by subagent and name.
    steps: HashSet<(Option<SubagentId>, Box<str>)>,
    /// The number of open steps per unnumbered name, so that a new step need not try all numbers.
    open_by_name: HashMap<Box<str>, usize>,
    /// Namespaces of the graphs in whose current step a task has ended.
    graphs_with_ended_tasks: HashSet<Box<str>>,
    /// The nested graphs that are shown as subagents, by namespace, outer ones first.
    subagents: IndexMap<Box<str>, SubagentId>,
}

/// One execution of a node.
#[derive(Debug)]
pub(super) struct NodeRun {
    pub(super) name: Box<str>,
    /// The namespace; may be empty.
    pub(super) ns: Box<str>,
    pub(super) superstep: Option<i64>,
    /// The tool calls in its input.
    pub(super) assigned_calls: Vec<ToolCallId>,
    /// The message that contains them, if it was never shown.
    pub(super) unseen_message: Option<Box<RawValue>>,
    pub(super) is_hidden: bool,
    /// The rules for the messages that it returns.
    pub(super) rules: Option<Box<OutputRules>>,
    /// Metadata of its step.
    pub(super) metadata: Option<Object>,
    /// The name of its step, while that is open.
    step: Option<Box<str>>,
    owner: Option<SubagentId>,
}

/// The outcome of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeEnd {
    Done,
    Failed,
}

impl NodeRuns {
    pub(super) fn get(&self, key: &str) -> Option<&NodeRun> {
        self.running.get(key)
    }

    pub(super) fn is_running(&self, key: &str) -> bool {
        self.running.contains_key(key)
    }

    pub(super) fn has_open(&self) -> bool {
        !self.running.is_empty()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.running.values().map(|node| &*node.name)
    }

    /// The oldest running node `name` of the graph at `outer`.
    pub(super) fn find(&self, outer: &str, name: &str) -> Option<Box<str>> {
        let found = self.running.iter().find(|(_, node)| {
            let (node_outer, _) = node.ns.rsplit_once('|').unwrap_or(("", &node.ns));
            *node.name == *name && node_outer == outer
        });
        found.map(|(key, _)| key.clone())
    }

    /// The running nodes of earlier supersteps of the same graph; they must have ended.
    pub(super) fn of_earlier_supersteps(&self, ns: &str, number: i64) -> Vec<Box<str>> {
        let level = |ns: &str| ns.rsplit_once('|').map(|(outer, _)| outer.to_owned());
        let outer = level(ns);
        let earlier = self.running.iter().filter(|(_, node)| {
            level(&node.ns) == outer && node.superstep.is_some_and(|earlier| earlier < number)
        });
        earlier.map(|(key, _)| key.clone()).collect()
    }

    /// The running nodes that must have ended when `next` starts: an earlier attempt at the same task and, in the
    /// outermost graph, all of earlier supersteps. A nested graph may run twice concurrently in one namespace.
    pub(super) fn superseded_by(&self, run: &str, next: &NodeRun, is_outermost: bool) -> Vec<Box<str>> {
        let mut ended = match next.superstep {
            Some(number) if is_outermost && !next.ns.is_empty() => {
                self.of_earlier_supersteps(&next.ns, number)
            }
            _ => Vec::new(),
        };
        let is_same = |node: &NodeRun| !node.ns.is_empty() && node.ns == next.ns && node.name == next.name;
        ended.extend(
            self.running
                .iter()
                .filter(|(key, node)| ***key != *run && is_same(node))
                .map(|(key, _)| key.clone()),
        );
        ended
    }

    /// A task of the graph at `ns` has ended.
    pub(super) fn task_ended(&mut self, ns: &str) {
        if self.graphs_with_ended_tasks.len() < MAX_NODES {
            self.graphs_with_ended_tasks.insert(ns.into());
        }
    }

    /// Starts another step of the graph at `ns`, if tasks of it have ended; returns the tasks that have not.
    pub(super) fn next_step(&mut self, ns: &str) -> Vec<Box<str>> {
        if !self.graphs_with_ended_tasks.remove(ns) {
            return Vec::new();
        }
        self.running.iter().filter(|(_, node)| outer(&node.ns) == ns).map(|(key, _)| key.clone()).collect()
    }

    /// The subagent to which events at `ns` belong; starts it if needed.
    pub(super) fn subagent_at(
        &mut self,
        cx: &mut ReaderContext<'_>,
        ns: &str,
        agent: Option<&str>,
    ) -> Option<SubagentId> {
        if !cx.options.subagents || !ns.contains('|') {
            return None;
        }
        let mut parent: Option<SubagentId> = None;
        for (at, _) in ns.match_indices('|') {
            let graph_ns = &ns[..at];
            if let Some(subagent) = self.subagents.get(graph_ns) {
                parent = Some(subagent.clone());
                continue;
            }
            if self.subagents.len() >= MAX_NODES {
                cx.tally.note("too many subagents", graph_ns);
                return parent;
            }
            let segment = graph_ns.rsplit('|').next().unwrap_or(graph_ns);
            let is_innermost = !ns[at + 1..].contains('|');
            let name = agent.filter(|_| is_innermost).unwrap_or_else(|| node_of(segment));
            let id = SubagentId::from(segment);
            // A tool node with a single tool call started the graph for that call.
            let node = self.running.values().find(|node| *node.ns == *graph_ns);
            let call = node.and_then(|node| match &node.assigned_calls[..] {
                [only] => Some(only.clone()),
                _ => None,
            });
            let started = SubagentStarted {
                name: name.into(),
                description: None,
                parent_subagent: parent.clone(),
                parent_message: call.as_ref().and_then(|call| ShownIds::holder(cx.shown, call).cloned()),
                parent_call: call,
            };
            cx.emit(Event::new(Body::SubagentStarted(Box::new(started))).by(Some(id.clone())));
            self.subagents.insert(graph_ns.into(), id.clone());
            parent = Some(id);
        }
        parent
    }

    pub(super) fn start(&mut self, cx: &mut ReaderContext<'_>, key: &str, mut node: NodeRun) {
        if self.running.len() >= MAX_NODES {
            cx.tally.note("too many nodes", &node.name);
            if let Some(oldest) = self.running.keys().next().cloned() {
                self.finish(cx, &oldest);
            }
        }
        node.owner = if node.is_hidden { None } else { self.subagent_at(cx, &node.ns, None) };
        self.running.insert(key.into(), node);
        if cx.options.steps == StepMode::Nodes {
            self.show_step(cx, key);
        }
    }

    /// Opens the step of a node, unless it is open.
    pub(super) fn show_step(&mut self, cx: &mut ReaderContext<'_>, key: &str) {
        let Some(node) = self.running.get(key) else { return };
        if node.is_hidden || node.step.is_some() || cx.options.steps == StepMode::None {
            return;
        }
        let base = step_name(&node.ns, &node.name);
        let (owner, metadata) = (node.owner.clone(), node.metadata.clone());
        let mut step = (owner, Box::<str>::from(base.as_str()));
        let open = self.open_by_name.entry(base.as_str().into()).or_default();
        *open += 1;
        let mut number = (*open).max(2);
        while self.steps.contains(&step) {
            step.1 = format!("{base}#{number}").into();
            number += 1;
        }
        self.steps.insert(step.clone());
        let (owner, name) = step;
        cx.emit(Event::new(Body::StepStarted { name: name.clone() }).by(owner).with_metadata(metadata));
        if let Some(node) = self.running.get_mut(key) {
            node.step = Some(name);
        }
    }

    /// Ends a node, after the nodes and subagents inside it.
    pub(super) fn finish(&mut self, cx: &mut ReaderContext<'_>, key: &str) {
        self.end(cx, key, NodeEnd::Done);
    }

    /// Ends a node that raised an exception.
    pub(super) fn fail(&mut self, cx: &mut ReaderContext<'_>, key: &str) {
        self.end(cx, key, NodeEnd::Failed);
    }

    fn end(&mut self, cx: &mut ReaderContext<'_>, key: &str, end: NodeEnd) {
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
                self.close_step(cx, &child, end);
            }
            // A fan-out may run two nodes in one namespace in turn; the subagent ends with the first.
            while let Some(at) =
                self.subagents.keys().rposition(|graph_ns| **graph_ns == *ns || graph_ns.starts_with(&inside))
            {
                self.finish_subagent(cx, at);
            }
        }
        self.close_step(cx, key, end);
    }

    fn close_step(&mut self, cx: &mut ReaderContext<'_>, key: &str, end: NodeEnd) {
        if let Some(node) = self.running.shift_remove(key)
            && let Some(name) = node.step
        {
            self.steps.remove(&(node.owner.clone(), name.clone()));
            let base = step_name(&node.ns, &node.name);
            if let Some(open) = self.open_by_name.get_mut(base.as_str()) {
                *open -= 1;
                if *open == 0 {
                    self.open_by_name.remove(base.as_str());
                }
            }
            let status = match end {
                NodeEnd::Done => None,
                NodeEnd::Failed => Some(Object::from_entries([("status", Json::string("error"))])),
            };
            cx.emit(Event::new(Body::StepFinished { name }).by(node.owner).with_metadata(status));
        }
    }

    fn finish_subagent(&mut self, cx: &mut ReaderContext<'_>, at: usize) {
        if let Some((_, id)) = self.subagents.shift_remove_index(at) {
            let body = Body::SubagentFinished { result: None, outcome: None };
            cx.emit(Event::new(body).by(Some(id)));
        }
    }

    /// Closes all steps, innermost first, at the end of the run. Returns the remaining subagents, whose outcome
    /// depends on that of the run.
    pub(super) fn finish_all(&mut self, cx: &mut ReaderContext<'_>, end: NodeEnd) -> Vec<SubagentId> {
        while let Some(last) = self.running.keys().next_back().cloned() {
            self.close_step(cx, &last, end);
        }
        self.graphs_with_ended_tasks.clear();
        self.subagents.drain(..).rev().map(|(_, id)| id).collect()
    }
}

impl NodeRun {
    pub(super) fn new(name: &str, ns: &str) -> Self {
        Self {
            name: name.into(),
            ns: ns.into(),
            superstep: None,
            assigned_calls: Vec::new(),
            unseen_message: None,
            is_hidden: false,
            rules: None,
            metadata: None,
            step: None,
            owner: None,
        }
    }
}

/// The name of a step: `outer/inner` for the namespace `outer:ID|inner:ID`.
pub(super) fn step_name(ns: &str, name: &str) -> String {
    let names: Vec<&str> = ns.split('|').filter(|segment| !is_counter(segment)).map(node_of).collect();
    match names.last() {
        Some(last) if *last == name => names.join("/"),
        Some(_) => format!("{}/{name}", names.join("/")),
        None => name.to_owned(),
    }
}

/// Whether a segment of a namespace is a counter, which LangGraph adds if a node calls a graph twice.
fn is_counter(segment: &str) -> bool {
    segment.bytes().all(|byte| byte.is_ascii_digit())
}
