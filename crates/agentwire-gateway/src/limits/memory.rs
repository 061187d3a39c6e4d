//! The memory governor: compares the memory of this process with its limit, so that the gateway refuses new work before
//! the allocator or the kernel ends the process.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::settings::MemoryLimit;

/// The age at which a measurement is repeated: reading it costs some microseconds.
const MAX_AGE: Duration = Duration::from_millis(100);

/// Parts of the limit in percent: from the first on, new runs are refused and slow readers are cut; from the second on, new
/// readers are refused too.
const HIGH: u64 = 85;
const CRITICAL: u64 = 95;

/// The shortage of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    None,
    High,
    Critical,
}

/// The memory of this process and its limit.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: Option<u64>,
    started: Instant,
    bytes: AtomicU64,
    /// The time of the measurement in milliseconds since `started`, plus one; 0 if there was none.
    measured: AtomicU64,
}

impl Memory {
    pub(crate) fn new(limit: MemoryLimit) -> Self {
        let limit = match limit {
            MemoryLimit::Unlimited => None,
            MemoryLimit::Bytes(bytes) => Some(bytes),
            MemoryLimit::Cgroup => {
                let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
                cgroup_limit(&groups, Path::new("/sys/fs/cgroup"))
            }
        };
        Self { limit, started: Instant::now(), bytes: AtomicU64::new(0), measured: AtomicU64::new(0) }
    }

    /// The limit in bytes.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Bytes of memory that the process has and that the kernel cannot take back; 0 where that cannot be measured.
    pub(crate) fn bytes(&self) -> u64 {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1;
        let measured = self.measured.load(Relaxed);
        if measured == 0 || now - measured.min(now) >= MAX_AGE.as_millis() as u64 {
            // Of several threads that find it old, each may measure; the result is the same.
            self.bytes.store(anonymous_bytes().unwrap_or(0), Relaxed);
            self.measured.store(now, Relaxed);
        }
        self.bytes.load(Relaxed)
    }

    pub(crate) fn pressure(&self) -> Pressure {
        let Some(limit) = self.limit else { return Pressure::None };
        let percent = self.bytes().saturating_mul(100) / limit.max(1);
        match percent {
            CRITICAL.. => Pressure::Critical,
            HIGH.. => Pressure::High,
            _ => Pressure::None,
        }
    }
}

/// The memory of this process that is not backed by files, from `/proc`.
fn anonymous_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    };
    Some(1024 * field("RssAnon:").or_else(|| field("VmRSS:"))?)
}

/// The smallest memory limit of the control groups of a process, versions 1 and 2.
fn cgroup_limit(groups: &str, root: &Path) -> Option<u64> {
    let limit = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let mut folder: PathBuf = root.join(path.trim_start_matches('/'));
        let mut smallest: Option<u64> = None;
        // A group has the limits of all groups around it. Within a container, the file of the container is at the root.
        while folder.starts_with(&root) {
            let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
            let own = text.trim().parse::<u64>().ok();
            smallest = smallest.into_iter().chain(own).min();
            folder.pop();
        }
        // Version 1 has a huge number in place of `max`.
        smallest.filter(|bytes| *bytes < 1 << 60)
    };
    groups.lines().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_of_all_groups_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().expect("it has one")).expect("a folder");
            fs::write(file, text).expect("a file");
        };
        write("a/memory.max", "1000\n");
        write("a/b/memory.max", "max\n");
        write("memory/c/memory.limit_in_bytes", "2000\n");
        write("memory/d/memory.limit_in_bytes", "9223372036854771712\n");
        let limit = |groups: &str| cgroup_limit(groups, root.path());
        assert_eq!(limit("0::/a/b\n"), Some(1000));
        assert_eq!(limit("0::/\n"), None);
        assert_eq!(limit("5:cpu,memory:/c\n3:pids:/c\n"), Some(2000));
        assert_eq!(limit("5:memory:/d\n"), None);
        assert_eq!(limit("5:memory:/c\n0::/a\n"), Some(1000));
        assert_eq!(limit(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pressure_is_the_part_of_the_limit() {
        let pressure = |limit| Memory::new(limit).pressure();
        assert_eq!(pressure(MemoryLimit::Unlimited), Pressure::None);
        assert_eq!(pressure(MemoryLimit::Bytes(1 << 50)), Pressure::None);
        assert_eq!(pressure(MemoryLimit::Bytes(1)), Pressure::Critical);
        let kept = vec![7_u8; 64 << 20];
        let memory = Memory::new(MemoryLimit::Bytes(1));
        assert!(memory.bytes() >= kept.len() as u64, "the vector counts");
        let limit = memory.bytes() * 100 / 90;
        assert_eq!(pressure(MemoryLimit::Bytes(limit)), Pressure::High);
    }
}
