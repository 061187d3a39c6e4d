//! The output of a run: drawn, as lines of a format, as one JSON document, or only the text.

use std::io::{self, IsTerminal, Write};

use agentwire_client::{Event, HttpAgent, Pending};
use agentwire_core::{
    format::{Options, Setup, Writer, ag_ui},
    framing::{Frames, Framing},
};
use serde_json::{Value, json};

use super::Ended;
use crate::{
    cli::RunArguments,
    error::Result,
    formats,
    terminal::{
        editor,
        screen::{Images, Screen},
    },
};

pub(super) enum Output {
    Drawn(Box<Screen>, Colors),
    Lines(Box<dyn Writer>, Frames),
    Json,
    Silent,
}

/// True if styles are written.
pub(super) struct Colors(bool);

impl Output {
    pub(super) fn new(arguments: &RunArguments) -> Result<Self> {
        if arguments.is_silent {
            return Ok(Self::Silent);
        }
        if arguments.json {
            return Ok(Self::Json);
        }
        if let Some(name) = &arguments.lines {
            let (format, profile) = formats::writer(name)?;
            let options = Options::default();
            let setup = Setup { thread: "thread".into(), run: "run".into(), options: &options };
            let framing = if profile.framing == Framing::Sse { Framing::Lines } else { profile.framing };
            let make = format.writer.expect("the format has a writer");
            return Ok(Self::Lines(make(profile, &setup), Frames::new(framing)));
        }
        let is_terminal = io::stdout().is_terminal();
        let images = if is_terminal { Images::of_terminal() } else { Images::No };
        let has_colors = is_terminal && !arguments.no_color && std::env::var_os("NO_COLOR").is_none();
        let columns = if is_terminal { editor::columns() } else { 100 };
        Ok(Self::Drawn(Box::new(Screen::new(columns, images, arguments.quiet)), Colors(has_colors)))
    }

    pub(super) fn event(&mut self, event: &Event) -> Result<()> {
        match self {
            Self::Drawn(screen, colors) => {
                let mut text = screen.event(event);
                if screen.is_raw {
                    text.push_str(&raw_line(event));
                }
                colors.print(&text);
            }
            Self::Lines(writer, frames) => {
                writer.write(event, frames);
                frames.finish_event(None);
                let bytes = frames.take();
                print_bytes(&bytes);
            }
            Self::Json | Self::Silent => {}
        }
        Ok(())
    }

    /// Ends the output of a run: the next text begins on a new line.
    pub(super) fn finish_run(&mut self) -> Result<()> {
        if let Self::Drawn(screen, colors) = self {
            colors.print(&screen.finish());
        }
        Ok(())
    }

    /// True if RUN_ERROR is part of the output.
    pub(super) fn shows_errors(&self) -> bool {
        matches!(self, Self::Drawn(screen, _) if !screen.is_quiet())
    }

    pub(super) fn screen(&mut self) -> Option<&mut Screen> {
        match self {
            Self::Drawn(screen, _) => Some(screen),
            _ => None,
        }
    }

    /// Prints the result, for `--json`.
    pub(super) fn conclude(&mut self, agent: &HttpAgent, ended: &Ended) -> Result<()> {
        if let Self::Json = self {
            println!("{}", document(agent, ended));
        }
        Ok(())
    }
}

impl Colors {
    fn print(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.0 {
            editor::write(text);
        } else {
            editor::write(&anstream::adapter::strip_str(text).to_string());
        }
    }
}

fn print_bytes(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// An event as AG-UI JSON.
fn raw_line(event: &Event) -> String {
    let options = Options::default();
    let setup = Setup { thread: "thread".into(), run: "run".into(), options: &options };
    let mut writer = ag_ui::FORMAT.writer.expect("AG-UI has a writer")(&ag_ui::FORMAT.profiles[0], &setup);
    let mut frames = Frames::new(Framing::Lines);
    writer.write(event, &mut frames);
    frames.finish_event(None);
    let text = String::from_utf8_lossy(&frames.take()).into_owned();
    crate::terminal::style::lines_only(&text)
}

fn document(agent: &HttpAgent, ended: &Ended) -> Value {
    let messages: Value =
        serde_json::from_str(&ag_ui::messages_to_json(&agent.messages())).unwrap_or_default();
    let mut document = json!({
        "threadId": agent.thread().as_str(),
        "runId": agent.last_run().map(|run| run.to_string()),
        "messages": messages,
        "state": agent.state(),
    });
    match ended {
        Ended::Interrupted => document["outcome"] = "interrupted".into(),
        Ended::Failed(error) => {
            document["outcome"] = "error".into();
            document["error"] = json!({"code": error.code(), "message": error.to_string()});
        }
        Ended::Outcome(outcome) => {
            let name = match () {
                () if outcome.is_cancelled => "cancelled",
                () if !outcome.pending.is_empty() => "waiting",
                () => "success",
            };
            document["outcome"] = name.into();
            document["result"] = outcome.result.clone().unwrap_or_default();
            let pending = outcome.pending.iter().map(|item| match item {
                Pending::Interrupt(it) => {
                    json!({"id": it.id.as_str(), "reason": &*it.reason, "message": it.message})
                }
                Pending::Call(call) => {
                    json!({"id": call.id.as_str(), "tool": &*call.name, "arguments": &*call.arguments})
                }
                _ => Value::Null,
            });
            document["pending"] = pending.collect();
            let usage = outcome.usage.iter().map(|usage| json!({"model": usage.model, "input": usage.input, "output": usage.output, "total": usage.total}));
            document["usage"] = usage.collect();
            let repairs =
                outcome.report.repairs.iter().map(|(rule, times)| (rule.name().to_owned(), (*times).into()));
            document["repairs"] = Value::Object(repairs.collect());
            document["recoveries"] = outcome.report.recoveries.iter().map(|it| it.as_str()).collect();
        }
    }
    document
}
