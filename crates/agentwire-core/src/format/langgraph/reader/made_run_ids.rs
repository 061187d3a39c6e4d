//! Runs for events that name none.
//!
//! LangChain gives every runnable a run id. Other bridges leave it out, and then only the order of events and the
//! names in them tell which start an end belongs to. The ids made here stay inside the reader, but for tools that
//! have no other.

use super::super::wire::EventName;

/// How many starts may wait for their end.
const MAX_OPEN: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Unnamed {
    open: Vec<Open>,
    count: u64,
}

#[derive(Debug)]
struct Open {
    kind: &'static str,
    name: Box<str>,
    run: Box<str>,
}

impl Unnamed {
    /// Nothing of the last run goes on; its ids are not used again.
    pub(super) fn next_run(&mut self) {
        self.open.clear();
    }

    /// The run of an event of the runnable `name`.
    pub(super) fn run(&mut self, event: EventName, name: &str) -> Box<str> {
        let event = event.as_str().trim_start_matches("on_");
        let (kind, stage) = event.rsplit_once('_').unwrap_or((event, ""));
        if kind == "custom" {
            return "".into();
        }
        if stage != "start" && stage != "action" {
            let same = |open: &Open| {
                open.kind == kind && (name.is_empty() || open.name.is_empty() || *open.name == *name)
            };
            // Tools run beside one another, everything else inside one another.
            let at = match kind {
                "tool" => self.open.iter().position(same),
                _ => self.open.iter().rposition(same),
            };
            if let Some(at) = at {
                return match stage {
                    "stream" => self.open[at].run.clone(),
                    _ => self.open.remove(at).run,
                };
            }
        }
        self.count += 1;
        let run: Box<str> = match name {
            "" => format!("{kind}-{}", self.count).into(),
            name => format!("{name}-{}", self.count).into(),
        };
        if matches!(stage, "start" | "stream") && self.open.len() < MAX_OPEN {
            self.open.push(Open { kind, name: name.into(), run: run.clone() });
        }
        run
    }
}
