//! `agentwire run` and `agentwire record`: a client in the terminal.

mod conversation;
mod output;
mod setup;

use std::io::{self, IsTerminal, Read};

use agentwire_client::{ClientError, ErrorKind, HttpAgent, Outcome, Run};
use futures_util::StreamExt;
use tokio::sync::{mpsc, oneshot};

use self::{output::Output, setup::Recorder};
use crate::{
    cli::{Record, RunArguments},
    error::{Class, Error, ExitCode, Result},
    terminal::{
        editor::{self, Keys},
        form::Form,
    },
};

/// The exit codes of `run`, beside those of [`Class`].
pub(crate) const RUN_FAILED: u8 = 1;
pub(crate) const BREACH: u8 = 3;
pub(crate) const WAITING: u8 = 4;
pub(crate) const INTERRUPTED: u8 = 130;

/// A question of the agent, and the place for its answer.
type Asked = (agentwire_client::Interrupt, oneshot::Sender<agentwire_client::Answer>);

pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode> {
    runtime()?.block_on(run_async(arguments))
}

pub(crate) fn record(arguments: &Record) -> Result<ExitCode> {
    let mut run = RunArguments::for_url(&arguments.url);
    run.connection.clone_from(&arguments.connection);
    run.message = Some(arguments.message.clone());
    run.record = Some(arguments.output.clone());
    run.is_silent = true;
    let code = runtime()?.block_on(run_async(&run))?;
    if code == ExitCode::SUCCESS {
        eprintln!("ok: `{}` is written", arguments.output.display());
    }
    Ok(code)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(Class::Io, format!("the runtime could not be started: {error}")))
}

/// A session: the agent and everything around its runs.
struct Session<'a> {
    arguments: &'a RunArguments,
    agent: HttpAgent,
    output: Output,
    recorder: Option<Recorder>,
    questions: mpsc::UnboundedReceiver<Asked>,
    /// True if the person has asked to leave during a run.
    is_leaving: bool,
}

async fn run_async(arguments: &RunArguments) -> Result<ExitCode> {
    let agent = setup::agent(arguments)?;
    let recorder = setup::recorder(arguments, &agent)?;
    let (asker, questions) = mpsc::unbounded_channel();
    let can_ask = io::stdin().is_terminal() && io::stdout().is_terminal() && !arguments.is_silent;
    if can_ask {
        agent.on_question(move |interrupt| {
            let asker = asker.clone();
            async move {
                let (reply, answer) = oneshot::channel();
                let _ = asker.send((interrupt, reply));
                answer.await.unwrap_or(agentwire_client::Answer::Leave)
            }
        });
    }
    let output = Output::new(arguments)?;
    let mut session = Session { arguments, agent, output, recorder, questions, is_leaving: false };
    if arguments.should_continue || arguments.reconnect {
        let synced = session.sync(arguments.reconnect).await?;
        if arguments.reconnect && arguments.message.is_none() && !can_ask {
            return session.conclude(synced);
        }
    }
    let message = match arguments.message.as_deref() {
        Some("-") => {
            let mut text = String::new();
            io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Error::new(Class::Io, format!("stdin could not be read: {error}")))?;
            Some(text.trim_end().to_owned())
        }
        Some(text) => Some(text.to_owned()),
        None => None,
    };
    match message {
        Some(message) => {
            let run = setup::first_run(arguments, &message)?;
            let ended = session.one_run(run, None).await?;
            session.conclude(ended)
        }
        None if can_ask => session.converse().await,
        None => session.converse_by_lines().await,
    }
}

/// The end of a run.
pub(crate) enum Ended {
    Outcome(Box<Outcome>),
    Failed(ClientError),
    Interrupted,
}

impl Session<'_> {
    /// Reads the conversation of the thread, and follows its active run.
    async fn sync(&mut self, is_shown: bool) -> Result<Ended> {
        let mut stream = self.agent.sync();
        while let Some(Ok(event)) = stream.next().await {
            if is_shown {
                self.output.event(&event)?;
            }
        }
        self.output.finish_run()?;
        Ok(match stream.finish().await {
            Ok(outcome) => Ended::Outcome(Box::new(outcome)),
            Err(error) => Ended::Failed(error),
        })
    }

    /// Runs the agent once and shows the events. Ctrl-C stops the run, a second one leaves it.
    async fn one_run(&mut self, run: Run, mut keys: Option<&mut Keys>) -> Result<Ended> {
        let mut stream = self.agent.run(run);
        let mut interrupts = 0;
        let mut typed = editor::LineBuffer::default();
        let failure = loop {
            tokio::select! {
                item = stream.next() => match item {
                    None => break None,
                    Some(Ok(event)) => self.output.event(&event)?,
                    Some(Err(error)) => break Some(error),
                },
                Some((interrupt, reply)) = self.questions.recv() => {
                    self.output.finish_run()?;
                    let answer = match keys.as_deref_mut() {
                        Some(keys) => Form::of(&interrupt).ask(&interrupt, keys).await,
                        None => match Keys::open() {
                            Ok(mut keys) => Form::of(&interrupt).ask(&interrupt, &mut keys).await,
                            Err(_) => agentwire_client::Answer::Leave,
                        },
                    };
                    let _ = reply.send(answer);
                }
                is_interrupt = interruption(keys.as_deref_mut(), &mut typed) => match is_interrupt {
                    Typed::Interrupt => {
                        interrupts += 1;
                        if interrupts > 1 || self.agent.stop().await.is_err() {
                            stream.abort();
                            break None;
                        }
                    }
                    Typed::Line(line) => {
                        self.output.finish_run()?;
                        editor::write(&format!("{line}\n"));
                        if self.command(&line).await? {
                            self.is_leaving = true;
                            stream.abort();
                            break None;
                        }
                    }
                },
            }
        };
        if let Some(keys) = keys {
            keys.begin_with(typed.text());
        }
        self.output.finish_run()?;
        let finished = stream.finish().await;
        if interrupts > 0 {
            return Ok(Ended::Interrupted);
        }
        Ok(match (failure, finished) {
            (Some(error), _) | (None, Err(error)) => Ended::Failed(error),
            (None, Ok(outcome)) => Ended::Outcome(Box::new(outcome)),
        })
    }

    /// Prints the result of the last run and returns the exit code.
    fn conclude(&mut self, ended: Ended) -> Result<ExitCode> {
        let violations = self.recorder.as_ref().map_or(0, Recorder::conclude);
        let code = match &ended {
            Ended::Interrupted => INTERRUPTED,
            Ended::Failed(error) => match error.kind() {
                ErrorKind::Run(_) => RUN_FAILED,
                ErrorKind::Frame(_) | ErrorKind::Truncated { .. } if self.arguments.check => BREACH,
                _ => Class::Server as u8,
            },
            Ended::Outcome(_) if violations > 0 => BREACH,
            Ended::Outcome(outcome) if !outcome.pending.is_empty() => WAITING,
            Ended::Outcome(_) => 0,
        };
        self.output.conclude(&self.agent, &ended)?;
        if let Ended::Failed(error) = &ended
            && !matches!(error.kind(), ErrorKind::Run(_))
        {
            return Err(Error::new(Class::Server, error.to_string()).with_code(code));
        }
        if let Ended::Failed(error) = &ended
            && !self.output.shows_errors()
        {
            eprintln!("error: {}", crate::terminal::style::one_line(&error.to_string()));
        }
        if code == WAITING {
            eprintln!("note: the run waits for an answer, and there is no terminal to ask");
        }
        Ok(ExitCode::from(code))
    }
}

/// Something that the person does during a run.
enum Typed {
    Interrupt,
    Line(String),
}

/// Waits for Ctrl-C, or a whole line with a command.
async fn interruption(keys: Option<&mut Keys>, typed: &mut editor::LineBuffer) -> Typed {
    let Some(keys) = keys else {
        let _ = tokio::signal::ctrl_c().await;
        return Typed::Interrupt;
    };
    loop {
        match keys.next().await {
            editor::Key::Interrupt => return Typed::Interrupt,
            editor::Key::Enter => {
                let line = std::mem::take(typed).text();
                match line.trim() {
                    "" => {}
                    text if text.starts_with('/') => return Typed::Line(text.to_owned()),
                    text => keys.type_ahead(text.to_owned()),
                }
            }
            editor::Key::Eof => std::future::pending().await,
            key => typed.edit(&key),
        }
    }
}
