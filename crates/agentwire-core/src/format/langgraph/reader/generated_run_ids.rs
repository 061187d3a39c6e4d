//! Run ids for native events that have none.
//!
//! LangChain gives every runnable a run id. Some bridges omit it; then the order of events and the names in them
//! match an end with its start. The generated ids are internal, except for tool calls without any other id.

use super::super::wire::EventName;

/// Bound on the runnables that are open.
const MAX_OPEN: usize = 1024;

/// Generates run ids and matches later events with their start.
#[derive(Debug, Default)]
pub(super) struct GeneratedRunIds {
    open: Vec<OpenRunnable>,
    count: u64,
}

/// A runnable that has started and not ended.
#[derive(Debug)]
struct OpenRunnable {
    kind: &'static str,
    name: Box<str>,
    run: Box<str>,
}

impl GeneratedRunIds {
    /// Ends all runnables at the start of another run; ids stay unique.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// The run id for an event of the runnable `name`.
    pub(super) fn run_id(&mut self, event: EventName, name: &str) -> Box<str> {
        let event = event.as_str().trim_start_matches("on_");
        let (kind, stage) = event.rsplit_once('_').unwrap_or((event, ""));
        if kind == "custom" {
            return "".into();
        }
        if stage != "start" && stage != "action" {
            let same = |open: &OpenRunnable| {
                open.kind == kind && (name.is_empty() || open.name.is_empty() || *open.name == *name)
            };
            // Tools run concurrently; all other runnables are nested.
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
            self.open.push(OpenRunnable { kind, name: name.into(), run: run.clone() });
        }
        run
    }
}
