//! `agentwire diff`: compares two recordings by meaning.
//!
//! Each recording becomes a list of items in the order in which they began: texts, thoughts, calls, results, ends of runs,
//! and the final state. Ids, timestamps, the pieces of a stream and the spelling of JSON are not part of it.

use std::{collections::HashMap, fmt::Write as _};

use agentwire_core::{
    event::{Body, Event, Outcome, Role},
    fold::Fold,
    framing::DEFAULT_MAX_FRAME,
    patch,
};
use serde_json::Value;

use crate::{
    check::counted,
    cli::Diff,
    error::{Class, ExitCode, Result},
    recording::Recording,
    terminal::style::{clipped, one_line},
};

/// Recordings with more items are compared position by position.
const MAX_ALIGNED: usize = 3000;

/// The columns of an item in the output.
const COLUMNS: usize = 160;

/// The number of changes of the state that are listed.
const MAX_CHANGES: usize = 20;

/// One item: its kind and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    kind: String,
    content: String,
}

pub(crate) fn run(arguments: &Diff) -> Result<ExitCode> {
    let a = Recording::read(&arguments.a, arguments.from.as_deref(), DEFAULT_MAX_FRAME)?;
    let b = Recording::read(&arguments.b, arguments.to.as_deref(), DEFAULT_MAX_FRAME)?;
    let ((items_a, state_a), (items_b, state_b)) = (items(&a.events), items(&b.events));
    let mut differences = 0;
    for line in compare(&items_a, &items_b) {
        differences += 1;
        println!("{line}");
    }
    let changes = patch::diff(&normal(state_a), &normal(state_b)).0;
    for change in changes.iter().take(MAX_CHANGES) {
        differences += 1;
        let value = change.value.as_ref().map(|value| format!(" {}", value.get())).unwrap_or_default();
        println!(
            "state: {} {}{}",
            change.op.as_str(),
            one_line(&change.path),
            clipped(&one_line(&value), COLUMNS)
        );
    }
    if changes.len() > MAX_CHANGES {
        println!("state: … {} more changes", changes.len() - MAX_CHANGES);
    }
    if differences == 0 {
        eprintln!("same: {}", counted(items_a.len() as u64, "item"));
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("different: {}", counted(differences, "difference"));
    Ok(ExitCode::from(Class::Violations as u8))
}

/// The items of a recording, and its final state.
fn items(events: &[Event]) -> (Vec<Item>, Value) {
    let mut collector = Collector::default();
    let mut fold = Fold::new();
    for event in events {
        fold.apply(event);
        collector.push(event);
    }
    let items = collector.items.into_iter().filter(|item| !item.content.is_empty());
    (
        items.map(|item| Item { content: comparable(&item.kind, &item.content), ..item }).collect(),
        fold.state().clone(),
    )
}

#[derive(Default)]
struct Collector {
    items: Vec<Item>,
    /// The item of each open message, thought and call.
    texts: HashMap<String, usize>,
    calls: HashMap<String, (usize, Box<str>)>,
    has_seen: usize,
}

impl Collector {
    fn push(&mut self, event: &Event) {
        match &event.body {
            Body::TextStart { message, role, .. } => {
                let role = role.unwrap_or(Role::Assistant).as_str();
                self.begin(format!("m{message}"), format!("text of {role}"));
            }
            Body::TextDelta { message, delta } => self.append(&format!("m{message}"), delta),
            Body::ReasoningMessageStart { message } => {
                self.begin(format!("r{message}"), "thinking".to_owned())
            }
            Body::ReasoningDelta { message, delta } => self.append(&format!("r{message}"), delta),
            Body::ToolStart { call, name, .. } => {
                self.calls.insert(call.to_string(), (self.items.len(), name.clone()));
                self.items.push(Item { kind: format!("call of {name}"), content: String::new() });
            }
            Body::ToolArgs { call, delta } => {
                if let Some((at, _)) = self.calls.get(call.as_str()) {
                    self.items[*at].content.push_str(delta);
                }
            }
            Body::ToolEnd { call } => {
                // A call without arguments is a call.
                if let Some((at, _)) = self.calls.get(call.as_str())
                    && self.items[*at].content.trim().is_empty()
                {
                    self.items[*at].content = "{}".to_owned();
                }
            }
            Body::ToolResult(result) => {
                let name = self
                    .calls
                    .get(result.call.as_str())
                    .map(|(_, name)| name.to_string())
                    .unwrap_or_default();
                let (kind, content) = match &result.error {
                    Some(error) => (format!("failure of {name}"), error.to_string()),
                    None => (format!("result of {name}"), result.content.text()),
                };
                let content = if content.is_empty() { "\"\"".to_owned() } else { content };
                self.items.push(Item { kind, content });
            }
            Body::RunFinished(finished) => {
                let end = match &finished.outcome {
                    Some(Outcome::Interrupt { interrupts }) => {
                        let asked = interrupts
                            .iter()
                            .map(|it| it.message.as_deref().unwrap_or(&it.reason).to_owned());
                        format!("interrupt: {}", asked.collect::<Vec<_>>().join("; "))
                    }
                    Some(Outcome::Cancelled) => "cancelled".to_owned(),
                    _ => "success".to_owned(),
                };
                self.items.push(Item { kind: "end".into(), content: end });
            }
            Body::RunError(error) => {
                self.items.push(Item { kind: "end".into(), content: format!("error: {}", error.message) });
            }
            Body::MessagesSnapshot { messages } => {
                // A snapshot repeats the conversation; only a stream that begins with one brings it.
                if self.has_seen == 0 {
                    for message in messages {
                        self.push_message(message);
                    }
                }
            }
            Body::Block(block) => {
                self.items.push(Item {
                    kind: format!("block {}", block.kind()),
                    content: block.output.get().to_owned(),
                });
            }
            _ => return,
        }
        self.has_seen += 1;
    }

    fn push_message(&mut self, message: &agentwire_core::event::Message) {
        use agentwire_core::event::MessageBody as Of;
        let role = message.role().as_str();
        let (kind, content) = match &message.body {
            Of::Developer { content } | Of::System { content } => {
                (format!("text of {role}"), content.to_string())
            }
            Of::User { content } => (format!("text of {role}"), content.text()),
            Of::Assistant { content, .. } => {
                (format!("text of {role}"), content.as_deref().unwrap_or_default().to_owned())
            }
            Of::Reasoning { content } => ("thinking".to_owned(), content.to_string()),
            Of::Tool { content, .. } => ("result of".to_owned(), content.text()),
            _ => return,
        };
        self.items.push(Item { kind, content });
        for call in message.tool_calls() {
            self.items
                .push(Item { kind: format!("call of {}", call.name), content: call.arguments.to_string() });
        }
    }

    fn begin(&mut self, key: String, kind: String) {
        self.texts.insert(key, self.items.len());
        self.items.push(Item { kind, content: String::new() });
    }

    fn append(&mut self, key: &str, delta: &str) {
        if let Some(at) = self.texts.get(key) {
            self.items[*at].content.push_str(delta);
        }
    }
}

/// The content in one spelling: JSON of calls, results and blocks is normalized.
fn comparable(kind: &str, content: &str) -> String {
    if kind.starts_with("text") || kind == "thinking" || kind == "end" {
        return content.trim().to_owned();
    }
    match serde_json::from_str(content) {
        Ok(value) => normal(value).to_string(),
        Err(_) => content.trim().to_owned(),
    }
}

/// A value with sorted members, and numbers in one spelling.
fn normal(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut members: Vec<_> = object.into_iter().map(|(key, value)| (key, normal(value))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(list) => list.into_iter().map(normal).collect(),
        Value::Number(number) => match number.as_f64() {
            // Whole numbers that a double holds exactly.
            Some(float) if float.fract() == 0.0 && float.abs() < 9e15 => Value::from(float as i64),
            _ => Value::Number(number),
        },
        other => other,
    }
}

/// The lines of the differences.
fn compare(a: &[Item], b: &[Item]) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut at, mut bt) = (0, 0);
    let shared = shared_items(a, b);
    for (next_a, next_b) in shared.into_iter().chain([(a.len(), b.len())]) {
        // Items of one kind at one place have changed; the others are missing or new.
        let (gone, new) = (&a[at..next_a], &b[bt..next_b]);
        let pairs = gone.iter().zip(new).take_while(|(a, b)| a.kind == b.kind).count();
        for (a, b) in gone.iter().zip(new).take(pairs) {
            lines.push(changed(a, b));
        }
        lines.extend(gone[pairs..].iter().map(|item| format!("- {}", shown(item))));
        lines.extend(new[pairs..].iter().map(|item| format!("+ {}", shown(item))));
        (at, bt) = (next_a + 1, next_b + 1);
    }
    lines
}

fn shown(item: &Item) -> String {
    clipped(&format!("{}: {}", one_line(&item.kind), one_line(&item.content)), COLUMNS)
}

/// A changed item, from the first difference on.
fn changed(a: &Item, b: &Item) -> String {
    let same = a.content.chars().zip(b.content.chars()).take_while(|(a, b)| a == b).count();
    let from = same.saturating_sub(20);
    let part = |text: &str| {
        let start = if from > 0 { "…" } else { "" };
        clipped(&format!("{start}{}", one_line(&text.chars().skip(from).collect::<String>())), COLUMNS)
    };
    let mut line = String::new();
    let _ = write!(
        line,
        "! {}, character {}:\n  - {}\n  + {}",
        one_line(&a.kind),
        same + 1,
        part(&a.content),
        part(&b.content)
    );
    line
}

/// The positions of the longest common sequence of items.
fn shared_items(a: &[Item], b: &[Item]) -> Vec<(usize, usize)> {
    if a.len() > MAX_ALIGNED || b.len() > MAX_ALIGNED {
        return a.iter().zip(b).enumerate().filter(|(_, (a, b))| a == b).map(|(at, _)| (at, at)).collect();
    }
    let mut lengths = vec![vec![0_u32; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            lengths[i][j] = if a[i] == b[j] {
                lengths[i + 1][j + 1] + 1
            } else {
                lengths[i + 1][j].max(lengths[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut shared) = (0, 0, Vec::new());
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            shared.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[i + 1][j] >= lengths[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    shared
}
