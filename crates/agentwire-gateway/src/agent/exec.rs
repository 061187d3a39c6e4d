//! A command per run: the run input as one line of JSON on its stdin, events of any known format on its stdout.
//!
//! The command leads a process group of its own, and the whole group is killed when the run is stopped, and stopped by
//! the system while the run is held. What a
//! command moves to another group (`setsid`) is its own responsibility.

use std::{
    collections::{HashMap, VecDeque},
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
    time::{Duration, timeout},
};

use super::{
    Agent, BoxFuture, BuildError, Failure, Hold, Outlet, Request,
    stream::{Close, Intake, Language, Patience, finish, pump},
};
use crate::code;

/// How long a command may tidy up after its last word. Nobody waits for that.
const GRACE: Duration = Duration::from_secs(5);

/// What every command needs to find itself and its language: nothing of it is secret.
const ALWAYS: &[&str] = &["PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

/// How long a failure waits for the end of stderr, which is there at once unless somebody holds it open.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How much is read at once.
const CHUNK: usize = 16 << 10;

/// The longest line of stderr that is logged in one piece.
const MAX_LINE: usize = 8 << 10;

/// How much of the end of stderr a failure carries to the log.
const TAIL: usize = 2 << 10;

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
    language: Language,
    running: Arc<Running>,
}

/// The commands of runs that go on: the process group that can be held, or `None` once it has said everything.
type Running = Mutex<HashMap<(Owner, RunId), Option<Leader>>>;

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
        let language = Language::named(options.format.as_deref(), &options.options)?;
        Ok(Self { options: Arc::new(options), language, running: Arc::default() })
    }

    fn command(&self, request: &Request) -> Command {
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
        if let Some(cwd) = cwd {
            command.current_dir(cwd);
        }
        command
    }
}

impl Agent for Exec {
    fn keeps_time(&self) -> bool {
        true
    }

    fn run(&self, request: Request, outlet: Outlet) -> BoxFuture<'static, Result<(), Failure>> {
        let this = self.clone();
        Box::pin(async move {
            let mut line = ag_ui::input::to_json(&request.input);
            line.push('\n');
            let child = this.command(&request).spawn().map_err(|error| {
                let program = &this.options.command[0];
                Failure::new(code::UPSTREAM_UNREACHABLE, "the agent's command could not be started")
                    .with_detail(format!("`{program}`: {error}"))
            })?;
            let mut group = Group::new(child);
            let listed = Listed::new(&this.running, &request, group.leader());
            if let Some(mut stdin) = group.child.stdin.take() {
                // A command that does not read must not keep us from reading.
                tokio::spawn(async move { stdin.write_all(line.as_bytes()).await });
            }
            let stderr = Arc::new(Mutex::new(VecDeque::new()));
            let Some((out, err)) = group.child.stdout.take().zip(group.child.stderr.take()) else {
                return Err(Failure::new(code::INTERNAL, "the agent's command has no output"));
            };
            let listener = tokio::spawn(listen(err, request.clone(), Arc::clone(&stderr)));
            let mut intake = Intake::new(&this.language, &request, None);
            let result = match pump(chunks(out), &mut intake, Patience::begin(&request), &outlet).await {
                Ok(Close::Over) => {
                    group.leave();
                    return Ok(());
                }
                Ok(close) => {
                    // From here on its process id may be given to somebody else.
                    listed.let_be();
                    let close = match (verdict(timeout(GRACE, group.child.wait()).await), close) {
                        // The command says by its status what a stream cannot.
                        (Ok(()), Close::Eof) => Close::Complete,
                        (Ok(()), close) => close,
                        (Err(failure), _) => Close::Broken(failure),
                    };
                    finish(&mut intake, close, &outlet).await
                }
                Err(failure) => Err(failure),
            };
            drop(listed);
            // With the command and its children, stderr ends.
            drop(group);
            let Err(failure) = result else { return Ok(()) };
            timeout(LAST_WORDS, listener).await.ok();
            let tail: Vec<u8> =
                stderr.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
            if tail.is_empty() {
                return Err(failure);
            }
            let said = format!("stderr: {}", String::from_utf8_lossy(&tail).trim_end());
            let detail =
                failure.detail.as_ref().map_or_else(|| said.clone(), |detail| format!("{detail}; {said}"));
            Err(failure.with_detail(detail))
        })
    }

    /// Hard: the whole group is stopped by the operating system, and goes on where it was. If the gateway dies
    /// meanwhile, the system lets it go on as well, so that it finds its output closed.
    fn hold(&self, request: &Request, hold: bool) -> Hold {
        let key = (request.owner.clone(), request.input.run.clone());
        match self.running.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            // It has not been started, and will not be while the run is held.
            None => Hold::Hard,
            Some(Some(leader)) if leader.signal(hold) => Hold::Hard,
            Some(_) => Hold::Soft,
        }
    }
}

/// Lists a command as one that can be held, as long as this lives.
struct Listed {
    running: Arc<Running>,
    key: (Owner, RunId),
}

impl Listed {
    fn new(running: &Arc<Running>, request: &Request, leader: Option<Leader>) -> Self {
        let listed =
            Self { running: Arc::clone(running), key: (request.owner.clone(), request.input.run.clone()) };
        listed.put(leader);
        listed
    }

    fn put(&self, leader: Option<Leader>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(self.key.clone(), leader);
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

/// The first process of a group, which gives the group its name.
#[derive(Clone, Copy, Debug)]
struct Leader(#[cfg(unix)] rustix::process::Pid);

impl Leader {
    /// Stops the group, or lets it go on; whether that was possible.
    fn signal(self, hold: bool) -> bool {
        #[cfg(unix)]
        {
            let signal = if hold { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT };
            rustix::process::kill_process_group(self.0, signal).is_ok()
        }
        #[cfg(not(unix))]
        {
            let _ = hold;
            false
        }
    }
}

/// What a command's end says.
fn verdict(status: Result<io::Result<ExitStatus>, tokio::time::error::Elapsed>) -> Result<(), Failure> {
    let failed = |what: String| Err(Failure::new(code::UPSTREAM_FAILED, what));
    match status {
        Ok(Ok(status)) if status.success() => Ok(()),
        // `exit status: 3`, `signal: 9 (SIGKILL)`.
        Ok(Ok(status)) => failed(format!("the agent's command failed ({status})")),
        Ok(Err(error)) => failed(format!("the agent's command was lost ({error})")),
        Err(_) => failed("the agent's command closed its output and went on".into()),
    }
}

/// A command with all its children; they are killed when this is dropped.
struct Group {
    child: Child,
    /// The command's process id, which is the group's. The child forgets it once it has ended.
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
}

impl Group {
    fn new(child: Child) -> Self {
        Self {
            #[cfg(unix)]
            leader: child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw),
            child,
        }
    }

    fn leader(&self) -> Option<Leader> {
        #[cfg(unix)]
        return self.leader.map(Leader);
        #[cfg(not(unix))]
        None
    }

    /// Lets the command end by itself, within reason.
    fn leave(mut self) {
        tokio::spawn(async move { timeout(GRACE, self.child.wait()).await.ok() });
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(leader) = self.leader {
            // It fails if nobody is left, which is what is wanted.
            rustix::process::kill_process_group(leader, rustix::process::Signal::KILL).ok();
        }
        self.child.start_kill().ok();
    }
}

/// A pipe as a stream.
fn chunks(pipe: impl AsyncRead + Unpin) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold((pipe, BytesMut::new()), |(mut pipe, mut buffer)| async move {
        buffer.reserve(CHUNK);
        match pipe.read_buf(&mut buffer).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(buffer.split().freeze()), (pipe, buffer))),
            Err(error) => Some((Err(error), (pipe, buffer))),
        }
    })
}

/// Logs what a command says on stderr, line by line, and keeps the end of it.
async fn listen(mut pipe: impl AsyncRead + Unpin, request: Request, tail: Arc<Mutex<VecDeque<u8>>>) {
    let (thread, run) = (&request.input.thread, &request.input.run);
    let mut line = Vec::new();
    let mut chunk = vec![0; MAX_LINE];
    let log = |line: &mut Vec<u8>| {
        if !line.is_empty() {
            let text = String::from_utf8_lossy(line);
            tracing::info!(target: "agentwire::exec", %thread, %run, "{}", text.trim_end());
            line.clear();
        }
    };
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        {
            let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
            tail.extend(&chunk[..read]);
            let surplus = tail.len().saturating_sub(TAIL);
            tail.drain(..surplus);
        }
        for piece in chunk[..read].split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if line.ends_with(b"\n") || line.len() >= MAX_LINE {
                log(&mut line);
            }
        }
    }
    log(&mut line);
}
