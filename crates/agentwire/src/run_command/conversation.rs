//! A conversation: messages and `/commands` of a person, line by line.

use std::{fs, io};

use agentwire_client::{ErrorKind, Feedback};
use agentwire_core::format::ag_ui;
use serde_json::Value;

use super::{Ended, INTERRUPTED, Session, setup};
use crate::{
    error::{Class, Error, ExitCode, Result},
    terminal::{
        editor::{Keys, Line, write},
        history::History,
        style::{BOLD, DIM, RED, one_line, styled},
    },
};

const COMMANDS: &str = "\
/status  /pause  /resume  /stop   the run
/state  /history  /pending        the thread, as the server has it
/thread [ID]  /tools  /raw        show or change
/feedback up|down [TEXT]          about the last run
/save FILE  /help  /quit";

impl Session<'_> {
    /// A conversation in a terminal.
    pub(super) async fn converse(&mut self) -> Result<ExitCode> {
        let mut keys = Keys::open()
            .map_err(|error| Error::new(Class::Io, format!("the terminal could not be used: {error}")))?;
        keys.set_history(History::of_thread(&self.agent.thread()));
        write(&format!("{}\n", styled(DIM, format!("thread {}  (/help, Ctrl-D ends)", self.agent.thread()))));
        let mut has_interrupted = false;
        let mut is_first = true;
        loop {
            let text = match keys.message("› ").await {
                Line::Eof => break,
                Line::Interrupt if has_interrupted => return Ok(ExitCode::from(INTERRUPTED)),
                Line::Interrupt => {
                    has_interrupted = true;
                    write(&format!("{}\n", styled(DIM, "Ctrl-C again leaves")));
                    continue;
                }
                Line::Text(text) => text.trim().to_owned(),
            };
            has_interrupted = false;
            if text.is_empty() {
                continue;
            }
            if text.starts_with('/') {
                let thread = self.agent.thread();
                if self.command(&text).await? {
                    break;
                }
                if self.agent.thread() != thread {
                    keys.set_history(History::of_thread(&self.agent.thread()));
                }
                continue;
            }
            let run = self.next_run(&text, &mut is_first)?;
            match self.one_run(run, Some(&mut keys)).await? {
                Ended::Failed(error) if !matches!(error.kind(), ErrorKind::Run(_)) => {
                    write(&format!("{}\n", styled(RED, one_line(&error.to_string()))));
                }
                Ended::Interrupted => has_interrupted = true,
                _ => {}
            }
            if self.is_leaving {
                break;
            }
        }
        drop(keys);
        let violations = self.recorder.as_ref().map_or(0, super::Recorder::conclude);
        Ok(ExitCode::from(if violations > 0 { super::BREACH } else { 0 }))
    }

    /// A conversation whose messages are the lines of stdin.
    pub(super) async fn converse_by_lines(&mut self) -> Result<ExitCode> {
        let mut last = Ended::Outcome(Box::default());
        let mut is_first = true;
        for line in io::stdin().lines() {
            let line =
                line.map_err(|error| Error::new(Class::Io, format!("stdin could not be read: {error}")))?;
            let text = line.trim();
            if text.is_empty() {
                continue;
            }
            if text.starts_with('/') {
                if self.command(text).await? {
                    break;
                }
                continue;
            }
            let run = self.next_run(text, &mut is_first)?;
            last = self.one_run(run, None).await?;
            if !matches!(&last, Ended::Outcome(outcome) if outcome.pending.is_empty()) {
                break;
            }
        }
        self.conclude(last)
    }

    fn next_run(&mut self, text: &str, is_first: &mut bool) -> Result<agentwire_client::Run> {
        let choices = self.output.screen().map(|screen| screen.choices.clone()).unwrap_or_default();
        let number = text.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let chosen = number.and_then(|at| choices.get(at)).map_or(text, String::as_str);
        if std::mem::take(is_first) {
            setup::first_run(self.arguments, chosen)
        } else {
            setup::request(self.arguments, chosen)
        }
    }

    /// Runs a `/command`; true if it ends the conversation.
    pub(super) async fn command(&mut self, line: &str) -> Result<bool> {
        let (name, rest) = line.split_once(' ').map_or((line, ""), |(name, rest)| (name, rest.trim()));
        let shown = match name {
            "/quit" | "/exit" | "/q" => return Ok(true),
            "/help" | "/?" => Ok(COMMANDS.to_owned()),
            "/status" => self.agent.status().await.map(pretty),
            "/pause" => self.agent.pause().await.map(pretty),
            "/resume" => self.agent.resume().await.map(pretty),
            "/stop" => self.agent.stop().await.map(pretty),
            "/state" => self.agent.server_state().await.map(pretty),
            "/pending" => self.agent.pending().await.map(pretty),
            "/history" => self.agent.history().await.map(|messages| {
                let json: Value =
                    serde_json::from_str(&ag_ui::messages_to_json(&messages)).unwrap_or_default();
                let lines = json.as_array().into_iter().flatten().map(|message| {
                    let member = |key: &str| {
                        message.get(key).map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned))
                    };
                    let text = member("content").or_else(|| member("toolCalls")).unwrap_or_default();
                    format!("{}: {}", styled(BOLD, member("role").unwrap_or_default()), one_line(&text))
                });
                lines.collect::<Vec<_>>().join("\n")
            }),
            "/thread" if rest.is_empty() => Ok(format!("thread {}", self.agent.thread())),
            "/thread" => {
                self.agent.set_thread(rest);
                let ended = self.sync(true).await?;
                match ended {
                    Ended::Failed(error) => Err(error),
                    _ => Ok(format!("thread {rest}")),
                }
            }
            "/tools" => {
                let tools = setup::tools(self.arguments)?;
                Ok(match tools.is_empty() {
                    true => "no tools; --tool FILE.json declares some".to_owned(),
                    false => tools
                        .iter()
                        .map(|it| format!("{}: {}", it.name, it.description))
                        .collect::<Vec<_>>()
                        .join("\n"),
                })
            }
            "/raw" => {
                let is_raw = self.output.screen().map(|screen| {
                    screen.is_raw = !screen.is_raw;
                    screen.is_raw
                });
                Ok(format!("raw events {}", if is_raw == Some(true) { "on" } else { "off" }))
            }
            "/feedback" => {
                let (rating, comment) = rest.split_once(' ').unwrap_or((rest, ""));
                if !matches!(rating, "up" | "down") {
                    Ok("usage: /feedback up|down [TEXT]".to_owned())
                } else {
                    let comment = (!comment.trim().is_empty()).then(|| comment.trim().to_owned());
                    let feedback = Feedback { rating: Some(rating.into()), comment, ..Feedback::default() };
                    self.agent.feedback(feedback).await.map(|_| "thank you".to_owned())
                }
            }
            "/save" if rest.is_empty() => Ok("usage: /save FILE".to_owned()),
            "/save" => {
                let text = ag_ui::messages_to_json(&self.agent.messages());
                Ok(match fs::write(rest, text) {
                    Ok(()) => format!("saved to {rest}"),
                    Err(error) => format!("`{rest}` could not be written: {error}"),
                })
            }
            other => Ok(format!("`{}` is no command; /help lists them", one_line(other))),
        };
        match shown {
            Ok(text) => write(&format!("{text}\n")),
            Err(error) => write(&format!("{}\n", styled(RED, one_line(&error.to_string())))),
        }
        Ok(false)
    }
}

fn pretty(value: Value) -> String {
    crate::terminal::style::lines_only(&serde_json::to_string_pretty(&value).unwrap_or_default())
}
