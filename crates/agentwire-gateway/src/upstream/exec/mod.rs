//! A command per run: the run input as one line of JSON on its stdin, events of any known format on its stdout.
//!
//! The command leads a process group of its own. When the run is stopped or fails, the group is killed, and so is what
//! has left it ([`family`]); while the run is held, the system stops all of them. A command that ends in good order
//! may leave a daemon behind, but nothing in its group.

mod family;
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
use futures_util::{Stream, stream};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::{Duration, sleep, timeout},
};

use self::{family::Family, stderr::Tail};
use super::decode::{Close, ExpectedFormat, StreamTimeouts, UpstreamDecoder, finish, pump};
use crate::agent::{Agent, BoxFuture, BuildError, EventSink, PauseMode, Request};
use crate::error::{UpstreamError, UpstreamErrorKind as Kind};

/// How long a command may tidy up after its last word, which nobody waits for; and how long its output may be silent once
/// it has ended, if a child of its holds it open.
const GRACE: Duration = Duration::from_secs(5);

/// What every command needs to find itself and its language: nothing of it is secret.
const ALWAYS: &[&str] = &["PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

/// How long a failure waits for the end of stderr, which is there at once unless somebody holds it open.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How much is read at once.
const CHUNK: usize = 16 << 10;

/// What to start.
#[derive(Clone, Debug, Default)]
pub struct ExecOptions {
    /// The program and its arguments. No shell is involved unless it is named.
    pub command: Vec<String>,
    /// The format of its stdout; told by its beginning if absent.
    pub format: Option<String>,
    /// The environment beyond what every command needs: names to pass on, or `NAME=value`.
    pub env: Vec<String>,
    /// Where to run; where the gateway runs if absent.
    pub cwd: Option<PathBuf>,
    /// Options of the format, `key=value`.
    pub options: Vec<String>,
}

/// A command as an agent.
#[derive(Clone, Debug)]
pub struct Exec {
    options: Arc<ExecOptions>,
    language: ExpectedFormat,
    running: Arc<Running>,
}

/// The commands of runs that go on: the processes that can be held, or `None` once everything was said.
type Running = Mutex<HashMap<(Owner, RunId), Option<Family>>>;

impl Exec {
    /// An agent that is a command.
    ///
    /// # Errors
    /// When there is no command, or the format or an option is none.
    pub fn new(options: ExecOptions) -> Result<Self, BuildError> {
        if options.command.first().is_none_or(String::is_empty) {
            return Err(BuildError("the command is empty".into()));
        }
        if let Some(entry) = options.env.iter().find(|entry| entry.is_empty() || entry.starts_with('=')) {
            return Err(BuildError(format!("`{entry}` names no variable of the environment")));
        }
        let language = ExpectedFormat::named(options.format.as_deref(), &options.options)?;
        Ok(Self { options: Arc::new(options), language, running: Arc::default() })
    }

    fn command(&self, request: &Request, mark: &str) -> Command {
        let ExecOptions { command, env, cwd, .. } = &*self.options;
        let (program, arguments) = command.split_first().expect("checked when it was made");
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        command.env_clear();
        for entry in ALWAYS.iter().copied().chain(env.iter().map(String::as_str)) {
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
        if let Some((_, value)) = request.headers.iter().find(|(name, _)| name == "traceparent") {
            command.env("TRACEPARENT", value);
        }
        command.env(family::MARK, mark);
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

    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let this = self.clone();
        Box::pin(async move {
            let mut line = ag_ui::input::to_json(&request.input);
            line.push('\n');
            let mark = family::mark();
            let child = this.command(&request, &mark).spawn().map_err(|error| {
                let program = &this.options.command[0];
                UpstreamError::from(Kind::Spawn).with_detail(format!("`{program}`: {error}"))
            })?;
            let mut started = Started::new(child, mark);
            let listed = Listed::new(&this.running, &request, started.family.clone());
            if let Some(mut stdin) = started.child.stdin.take() {
                // A command that does not read must not keep us from reading.
                tokio::spawn(async move { stdin.write_all(line.as_bytes()).await });
            }
            let Some((out, err)) = started.child.stdout.take().zip(started.child.stderr.take()) else {
                return Err(Kind::Internal("the agent's command has no output".into()).into());
            };
            let tail = Tail::default();
            let listener = tokio::spawn(stderr::listen(err, request.clone(), tail.clone()));
            let mut intake = UpstreamDecoder::new(&this.language, &request, None);
            let bytes = chunks(out, &mut started.child, &listed);
            let pumped = pump(bytes, &mut intake, StreamTimeouts::begin(&request), &sink).await;
            let result = match pumped {
                Ok(Close::Over) => {
                    started.leave();
                    return Ok(());
                }
                Ok(close) => {
                    // From here on its process id may be given to somebody else.
                    listed.let_be();
                    let close = match (verdict(timeout(GRACE, started.child.wait()).await), close) {
                        // The command says by its status what a stream cannot.
                        (Ok(()), Close::Eof) => Close::Complete,
                        (Ok(()), close) => close,
                        (Err(failure), _) => Close::Broken(failure),
                    };
                    finish(&mut intake, close, &sink).await
                }
                Err(failure) => Err(failure),
            };
            drop(listed);
            let Err(failure) = result else {
                started.may_leave = true;
                return Ok(());
            };
            // With the command and its children, stderr ends.
            drop(started);
            timeout(LAST_WORDS, listener).await.ok();
            let tail = tail.text();
            if tail.is_empty() {
                return Err(failure);
            }
            let said = format!("stderr: {tail}");
            let detail = failure.detail().map_or_else(|| said.clone(), |detail| format!("{detail}; {said}"));
            Err(failure.with_detail(detail))
        })
    }

    /// Hard: all its processes are stopped by the operating system, and go on where they were. If the gateway dies
    /// meanwhile, the system lets them go on as well, so that they find their output closed.
    fn pause(&self, request: &Request, is_paused: bool) -> PauseMode {
        let key = (request.owner.clone(), request.input.run.clone());
        match self.running.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            // It has not been started, and will not be while the run is held.
            None => PauseMode::Hard,
            Some(Some(family)) if family.pause(is_paused) => PauseMode::Hard,
            Some(_) => PauseMode::Soft,
        }
    }
}

/// Lists a command as one that can be held, as long as this lives.
struct Listed {
    running: Arc<Running>,
    key: (Owner, RunId),
}

impl Listed {
    fn new(running: &Arc<Running>, request: &Request, family: Family) -> Self {
        let listed =
            Self { running: Arc::clone(running), key: (request.owner.clone(), request.input.run.clone()) };
        listed.put(Some(family));
        listed
    }

    fn put(&self, family: Option<Family>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(self.key.clone(), family);
    }

    /// The command ends by itself now.
    fn let_be(&self) {
        self.put(None);
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// What a command's end says.
fn verdict(status: Result<io::Result<ExitStatus>, tokio::time::error::Elapsed>) -> Result<(), UpstreamError> {
    let failed = |what: String| Err(Kind::Failed(what.into()).into());
    match status {
        Ok(Ok(status)) if status.success() => Ok(()),
        // `exit status: 3`, `signal: 9 (SIGKILL)`.
        Ok(Ok(status)) => failed(format!("the agent's command failed ({status})")),
        Ok(Err(error)) => failed(format!("the agent's command was lost ({error})")),
        Err(_) => failed("the agent's command closed its output and went on".into()),
    }
}

/// A command that was started; what is left of it and its children is killed when this is dropped.
struct Started {
    child: Child,
    family: Family,
    /// It ended in good order: what has left its group is a daemon that is meant to stay.
    may_leave: bool,
}

impl Started {
    fn new(child: Child, mark: String) -> Self {
        Self { family: Family::of(&child, mark), child, may_leave: false }
    }

    /// Lets the command end by itself, within reason.
    fn leave(mut self) {
        self.may_leave = true;
        tokio::spawn(async move { timeout(GRACE, self.child.wait()).await.ok() });
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.family.kill();
        self.child.start_kill().ok();
        if !self.may_leave {
            self.family.kill_strays();
        }
    }
}

/// What a command writes. Its children may write on when it has ended, but not be silent for long: a daemon that
/// forgot to close its output would hold the run for ever.
fn chunks(
    pipe: impl AsyncRead + Unpin,
    child: &mut Child,
    listed: &Listed,
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
                    listed.let_be();
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
