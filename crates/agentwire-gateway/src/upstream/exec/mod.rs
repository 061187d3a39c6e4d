//! Upstream `exec`: one command per run, with the run input as one line of JSON on stdin and events of any known format
//! on stdout.
//!
//! The command leads its own process group. When the run is stopped or fails, the group and all descendants outside it
//! are killed ([`processes`]); while the run is paused, the operating system stops them. A command that exits with
//! success may leave a daemon behind, but no process in its group.

mod processes;
mod stderr;

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use agentwire_core::{event::RunId, format::ag_ui};
use agentwire_store::Owner;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, TryStreamExt, stream};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::{Duration, sleep, timeout},
};

use self::{processes::CommandProcesses, stderr::StderrTail};
use super::{
    decode::{Close, ExpectedFormat, UpstreamDecoder, connection_lost, finish, pump},
    http,
    thread_names::{self, ServerThreads},
    timeouts::StreamTimeouts,
};
use crate::agent::{Agent, BoxFuture, BuildError, EventSink, PauseMode, Request};
use crate::error::{UpstreamError, UpstreamErrorKind as Kind};

/// The time that a command has to exit after its terminal event, in the background; also the idle timeout of its output
/// after its exit, if a child process holds the output open.
const GRACE: Duration = Duration::from_secs(5);

/// The environment variables that every command gets: paths and locale, nothing secret.
const BASE_ENV: &[&str] = &["PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

/// The environment variable with the signed identity that servers get in a header.
const IDENTITY_VARIABLE: &str = "AGENTWIRE_IDENTITY";

/// The time that an error waits for the end of stderr; needed only if another process holds it open.
const STDERR_GRACE: Duration = Duration::from_secs(1);

/// The number of bytes read at once.
const CHUNK: usize = 16 << 10;

/// Options of the upstream `exec`.
#[derive(Clone, Debug, Default)]
pub struct ExecOptions {
    /// The program and its arguments. No shell is involved unless it is the program.
    pub command: Vec<String>,
    /// The format of stdout; detected if absent.
    pub format: Option<String>,
    /// Additional environment variables: names to pass on, or `NAME=value`.
    pub env: Vec<String>,
    /// The working directory; the gateway's if absent.
    pub cwd: Option<PathBuf>,
    /// Options of the format, `key=value`.
    pub options: Vec<String>,
}

/// An agent that is a command.
#[derive(Clone, Debug)]
pub struct Exec {
    options: Arc<ExecOptions>,
    format: ExpectedFormat,
    running: Arc<RunningCommands>,
}

/// The commands of live runs: the processes that can be paused, or `None` once the command exits by itself.
type RunningCommands = Mutex<HashMap<(Owner, RunId), Option<CommandProcesses>>>;

impl Exec {
    /// An agent that is a command.
    ///
    /// # Errors
    /// When there is no command, or the format or an option is invalid.
    pub fn new(options: ExecOptions) -> Result<Self, BuildError> {
        if options.command.first().is_none_or(String::is_empty) {
            return Err(BuildError("the command is empty".into()));
        }
        if let Some(entry) = options.env.iter().find(|entry| entry.is_empty() || entry.starts_with('=')) {
            return Err(BuildError(format!("`{entry}` names no variable of the environment")));
        }
        let format = ExpectedFormat::named(options.format.as_deref(), &options.options)?;
        Ok(Self { options: Arc::new(options), format, running: Arc::default() })
    }

    fn command(&self, request: &Request, mark: &str, identity: Option<String>) -> Command {
        let ExecOptions { command, env, cwd, .. } = &*self.options;
        let (program, arguments) = command.split_first().expect("checked when it was made");
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        command.env_clear();
        for entry in BASE_ENV.iter().copied().chain(env.iter().map(String::as_str)) {
            match entry.split_once('=') {
                Some((name, value)) => {
                    command.env(name, value);
                }
                None => {
                    if let Some(value) = std::env::var_os(entry) {
                        command.env(entry, value);
                    }
                }
            }
        }
        for (header, variable) in [("traceparent", "TRACEPARENT"), ("tracestate", "TRACESTATE")] {
            if let Some((_, value)) = request.headers.iter().find(|(name, _)| name == header) {
                command.env(variable, value);
            }
        }
        if let Some(token) = identity {
            command.env(IDENTITY_VARIABLE, token);
        }
        command.env(processes::MARK, mark);
        if let Some(cwd) = cwd {
            command.current_dir(cwd);
        }
        command
    }
}

impl Agent for Exec {
    fn enforces_stream_timeouts(&self) -> bool {
        true
    }

    fn speaks_hai(&self) -> bool {
        self.format.is_hai()
    }

    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let this = self.clone();
        Box::pin(async move {
            let mut line = ag_ui::input::to_json(&thread_names::sent_input(&request));
            line.push('\n');
            let mark = processes::new_mark();
            let identity = http::identity_token(&request, ServerThreads::Text)?;
            let child = this.command(&request, &mark, identity).spawn().map_err(|error| {
                let program = &this.options.command[0];
                UpstreamError::from(Kind::Spawn).with_detail(format!("`{program}`: {error}"))
            })?;
            let mut started = StartedCommand::new(child, mark);
            let entry = RunningEntry::new(&this.running, &request, started.processes.clone());
            if let Some(mut stdin) = started.child.stdin.take() {
                // A command that does not read stdin must not block the reading of its output.
                tokio::spawn(async move { stdin.write_all(line.as_bytes()).await });
            }
            let Some((out, err)) = started.child.stdout.take().zip(started.child.stderr.take()) else {
                return Err(Kind::Internal("the agent's command has no output".into()).into());
            };
            let tail = StderrTail::default();
            let stderr_log = tokio::spawn(stderr::log(err, request.clone(), tail.clone()));
            let mut decoder = UpstreamDecoder::new(&this.format, &request, None);
            let bytes = chunks(out, &mut started.child, &entry).map_err(connection_lost);
            let pumped = pump(bytes, &mut decoder, StreamTimeouts::start(&request), &sink).await;
            let result = match pumped {
                Ok(Close::Done) => {
                    started.release();
                    return Ok(());
                }
                Ok(close) => {
                    // From here on another process may get the process id.
                    entry.mark_exiting();
                    let close = match (exit_result(timeout(GRACE, started.child.wait()).await), close) {
                        // The exit status confirms that the stream is complete.
                        (Ok(()), Close::Eof) => Close::Complete,
                        (Ok(()), close) => close,
                        (Err(error), _) => Close::Broken(error),
                    };
                    finish(&mut decoder, close, &sink).await
                }
                Err(error) => Err(error),
            };
            drop(entry);
            let Err(error) = result else {
                started.may_leave_daemons = true;
                return Ok(());
            };
            // stderr ends with the command and its children.
            drop(started);
            timeout(STDERR_GRACE, stderr_log).await.ok();
            let tail = tail.text();
            if tail.is_empty() {
                return Err(error);
            }
            let stderr = format!("stderr: {tail}");
            let detail =
                error.detail().map_or_else(|| stderr.clone(), |detail| format!("{detail}; {stderr}"));
            Err(error.with_detail(detail))
        })
    }

    /// A hard pause: the operating system stops all processes of the command. If the gateway dies meanwhile, the
    /// system resumes them, and they find their output closed.
    fn pause(&self, request: &Request, is_paused: bool) -> PauseMode {
        let key = (request.owner.clone(), request.input.run.clone());
        match self.running.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            // Not started yet, and it will not be while the run is paused.
            None => PauseMode::Hard,
            Some(Some(processes)) if processes.pause(is_paused) => PauseMode::Hard,
            Some(_) => PauseMode::Soft,
        }
    }
}

/// The entry of a command in [`RunningCommands`]; removed on drop.
struct RunningEntry {
    running: Arc<RunningCommands>,
    key: (Owner, RunId),
}

impl RunningEntry {
    fn new(running: &Arc<RunningCommands>, request: &Request, processes: CommandProcesses) -> Self {
        let entry =
            Self { running: Arc::clone(running), key: (request.owner.clone(), request.input.run.clone()) };
        entry.set(Some(processes));
        entry
    }

    fn set(&self, processes: Option<CommandProcesses>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(self.key.clone(), processes);
    }

    /// The command exits by itself, so it must not be signalled any more.
    fn mark_exiting(&self) {
        self.set(None);
    }
}

impl Drop for RunningEntry {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// The result of a command by its exit status.
fn exit_result(
    status: Result<io::Result<ExitStatus>, tokio::time::error::Elapsed>,
) -> Result<(), UpstreamError> {
    let failed = |message: String| Err(Kind::Failed(message.into()).into());
    match status {
        Ok(Ok(status)) if status.success() => Ok(()),
        // `exit status: 3`, `signal: 9 (SIGKILL)`.
        Ok(Ok(status)) => failed(format!("the agent's command failed ({status})")),
        Ok(Err(error)) => failed(format!("the agent's command was lost ({error})")),
        Err(_) => failed("the agent's command closed its output and went on".into()),
    }
}

/// A started command. It and its descendants are killed on drop.
struct StartedCommand {
    child: Child,
    processes: CommandProcesses,
    /// The run has ended well: descendants outside the group are daemons and stay.
    may_leave_daemons: bool,
}

impl StartedCommand {
    fn new(child: Child, mark: String) -> Self {
        Self { processes: CommandProcesses::of(&child, mark), child, may_leave_daemons: false }
    }

    /// Lets the command exit by itself within [`GRACE`].
    fn release(mut self) {
        self.may_leave_daemons = true;
        tokio::spawn(async move { timeout(GRACE, self.child.wait()).await.ok() });
    }
}

impl Drop for StartedCommand {
    fn drop(&mut self) {
        self.processes.kill();
        self.child.start_kill().ok();
        if !self.may_leave_daemons {
            self.processes.kill_strays();
        }
    }
}

/// The output of a command. Its children may continue to write after its exit, but only with pauses below [`GRACE`]: a
/// daemon that does not close the output would block the run forever.
fn chunks(
    pipe: impl AsyncRead + Unpin,
    child: &mut Child,
    running: &RunningEntry,
) -> impl Stream<Item = io::Result<Bytes>> {
    let state = (pipe, BytesMut::new(), child, false);
    stream::unfold(state, move |(mut pipe, mut buffer, child, mut has_ended)| async move {
        buffer.reserve(CHUNK);
        let read = loop {
            tokio::select! {
                biased;
                read = pipe.read_buf(&mut buffer) => break read,
                _ = child.wait(), if !has_ended => {
                    has_ended = true;
                    running.mark_exiting();
                }
                () = sleep(GRACE), if has_ended => break Ok(0),
            }
        };
        match read {
            Ok(0) => None,
            Ok(_) => Some((Ok(buffer.split().freeze()), (pipe, buffer, child, has_ended))),
            Err(error) => Some((Err(error), (pipe, buffer, child, has_ended))),
        }
    })
}
