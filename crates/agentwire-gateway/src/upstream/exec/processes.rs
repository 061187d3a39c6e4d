//! All processes of a command, also those outside its process group.
//!
//! One signal reaches a whole group, but a process can leave the group with `setsid`, as daemons do. It keeps its
//! environment, so every command gets a unique mark there; a process that has emptied its environment is found through
//! its parents as long as they live. Without `/proc` only the group is reached.

#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// The environment variable that holds the mark of a command.
pub(super) const MARK: &str = "AGENTWIRE_COMMAND";

/// The number of searches for processes that were started during the search before. One is enough unless they fork as
/// fast as they are killed.
#[cfg(target_os = "linux")]
const ROUNDS: usize = 16;

/// A mark that is unique on this machine.
pub(super) fn new_mark() -> String {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        time::{SystemTime, UNIX_EPOCH},
    };
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}-{time:x}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The processes of a command: itself and all its descendants.
#[derive(Clone, Debug)]
pub(super) struct CommandProcesses {
    /// The process id of the command and of its group. [`Child`] does not return it after the exit.
    #[cfg(unix)]
    leader: Option<Pid>,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no `/proc` to look for it"))]
    mark: String,
}

impl CommandProcesses {
    /// The processes of a command with this mark in its environment. The command must lead a group.
    pub(super) fn of(child: &Child, mark: String) -> Self {
        Self {
            #[cfg(unix)]
            leader: child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw),
            mark,
        }
    }

    /// Stops or continues all of them; whether that was possible.
    pub(super) fn pause(&self, is_paused: bool) -> bool {
        #[cfg(unix)]
        {
            let signal = if is_paused { Signal::STOP } else { Signal::CONT };
            let was_signalled = self.leader.is_some_and(|leader| kill_process_group(leader, signal).is_ok());
            self.signal_strays(signal);
            was_signalled
        }
        #[cfg(not(unix))]
        {
            let _ = is_paused;
            false
        }
    }

    /// Kills the group.
    pub(super) fn kill(&self) {
        #[cfg(unix)]
        if let Some(leader) = self.leader {
            // It fails if no process is left.
            kill_process_group(leader, Signal::KILL).ok();
        }
    }

    /// Kills the processes outside the group, in the background: the search visits every process of the machine.
    pub(super) fn kill_strays(&self) {
        #[cfg(target_os = "linux")]
        {
            let processes = self.clone();
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || processes.signal_strays(Signal::KILL))),
                Err(_) => processes.signal_strays(Signal::KILL),
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn signal_strays(&self, signal: Signal) {
        let mut reached = std::collections::HashSet::new();
        for _ in 0..ROUNDS {
            let before = reached.len();
            for process in strays::find(&self.mark, self.leader) {
                if reached.insert(process) {
                    rustix::process::kill_process(process, signal).ok();
                }
            }
            if reached.len() == before {
                return;
            }
        }
        tracing::warn!(target: "agentwire::exec", "a command starts processes faster than they can be stopped");
    }

    #[cfg(all(unix, not(target_os = "linux")))]
    #[expect(clippy::unused_self, reason = "there is no `/proc` to look for them")]
    fn signal_strays(&self, _: Signal) {}
}

/// Processes by `/proc`.
#[cfg(target_os = "linux")]
mod strays {
    use std::{collections::HashSet, fs};

    use rustix::process::Pid;

    use super::MARK;

    /// The processes with the mark and their descendants, without those of the group.
    pub(super) fn find(mark: &str, group: Option<Pid>) -> Vec<Pid> {
        let entry = format!("{MARK}={mark}");
        let own = rustix::process::getpid();
        let processes: Vec<Process> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().and_then(Process::read))
            .filter(|process| process.id != own)
            .collect();
        let has_mark = |process: &Process| {
            // The environment of another user's process cannot be read; such a process is found through its parents.
            let environment = fs::read(format!("/proc/{}/environ", process.id.as_raw_nonzero()));
            environment.is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == entry.as_bytes()))
        };
        let mut found: HashSet<Pid> =
            processes.iter().filter(|one| has_mark(one)).map(|one| one.id).collect();
        found.extend(group);
        loop {
            let before = found.len();
            let children =
                processes.iter().filter(|one| one.parent.is_some_and(|parent| found.contains(&parent)));
            let children: Vec<_> = children.map(|one| one.id).collect();
            found.extend(children);
            if found.len() == before {
                break;
            }
        }
        let is_stray = |one: &&Process| found.contains(&one.id) && one.group != group;
        processes.iter().filter(is_stray).map(|one| one.id).collect()
    }

    struct Process {
        id: Pid,
        parent: Option<Pid>,
        group: Option<Pid>,
    }

    impl Process {
        /// Reads a live process.
        fn read(id: i32) -> Option<Self> {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            // `17 (a name) can contain anything) S 1 17 …`
            let (_, rest) = stat.rsplit_once(')')?;
            let mut fields = rest.split_ascii_whitespace();
            let state = fields.next()?;
            let mut next = || fields.next()?.parse().ok().and_then(Pid::from_raw);
            let (parent, group) = (next(), next());
            (!matches!(state, "Z" | "X")).then_some(Self { id: Pid::from_raw(id)?, parent, group })
        }
    }
}
