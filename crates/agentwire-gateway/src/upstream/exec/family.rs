//! Everything that a command has started, also what has left its process group.
//!
//! A group is what one signal reaches, and a process leaves it by one call (`setsid`), as daemons do. What it takes along
//! is its environment, so every command gets a mark there that no other has; and as long as its parents live it can be
//! found by them, should it have emptied its environment. Where there is no `/proc`, the group is all there is.

#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// The variable of the environment that says to which command a process belongs.
pub(super) const MARK: &str = "AGENTWIRE_COMMAND";

/// How often processes are looked for that were born while others were found. One round is enough unless they fork as
/// fast as they are killed.
#[cfg(target_os = "linux")]
const ROUNDS: usize = 16;

/// A mark that no other command on this machine has.
pub(super) fn mark() -> String {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        time::{SystemTime, UNIX_EPOCH},
    };
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}-{time:x}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A command with all its descendants.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// The command's process id, which is the group's. The child forgets it once it has ended.
    #[cfg(unix)]
    leader: Option<Pid>,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no `/proc` to look for it"))]
    mark: String,
}

impl Family {
    /// That of a command whose environment has the mark. The command must lead a group.
    pub(super) fn of(child: &Child, mark: String) -> Self {
        Self {
            #[cfg(unix)]
            leader: child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw),
            mark,
        }
    }

    /// Stops all of them, or lets them go on; whether that was possible.
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
            // It fails if nobody is left, which is what is wanted.
            kill_process_group(leader, Signal::KILL).ok();
        }
    }

    /// Kills what has left the group. Nobody waits for that: it looks at every process of the machine.
    pub(super) fn kill_strays(&self) {
        #[cfg(target_os = "linux")]
        {
            let family = self.clone();
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || family.signal_strays(Signal::KILL))),
                Err(_) => family.signal_strays(Signal::KILL),
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

/// Processes as `/proc` shows them.
#[cfg(target_os = "linux")]
mod strays {
    use std::{collections::HashSet, fs};

    use rustix::process::Pid;

    use super::MARK;

    /// Those that bear the mark, and their descendants; not those of the group.
    pub(super) fn find(mark: &str, group: Option<Pid>) -> Vec<Pid> {
        let entry = format!("{MARK}={mark}");
        let own = rustix::process::getpid();
        let processes: Vec<Process> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().and_then(Process::read))
            .filter(|process| process.id != own)
            .collect();
        let bears = |process: &Process| {
            // That of another user's process cannot be read; it can be found by its parents only.
            let environment = fs::read(format!("/proc/{}/environ", process.id.as_raw_nonzero()));
            environment.is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == entry.as_bytes()))
        };
        let mut found: HashSet<Pid> = processes.iter().filter(|one| bears(one)).map(|one| one.id).collect();
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
        /// One that lives.
        fn read(id: i32) -> Option<Self> {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            // `17 (a name) may hold anything) S 1 17 …`
            let (_, rest) = stat.rsplit_once(')')?;
            let mut fields = rest.split_ascii_whitespace();
            let state = fields.next()?;
            let mut next = || fields.next()?.parse().ok().and_then(Pid::from_raw);
            let (parent, group) = (next(), next());
            (!matches!(state, "Z" | "X")).then_some(Self { id: Pid::from_raw(id)?, parent, group })
        }
    }
}
