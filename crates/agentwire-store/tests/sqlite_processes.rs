//! Several processes on one file: killed during writes, and racing for threads.
//!
//! Each test starts itself as its child processes, which recognise their role by the environment variable [`ROLE`].

#![cfg(feature = "sqlite")]

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use agentwire_store::*;

const ROLE: &str = "AGENTWIRE_STORE_CHILD";
const RUNS: usize = 4;

fn owner() -> Owner {
    Owner::new("acme", "ada", "demo")
}

/// Long enough that no lease expires by itself.
const TTL: Duration = Duration::from_secs(3600);

async fn open_at(path: &Path, durability: Durability) -> Arc<dyn Store> {
    let sqlite = SqliteOptions { durability, busy_timeout: Duration::from_secs(240), ..Default::default() };
    let options = Options { sqlite, ..Options::default() };
    open(&format!("sqlite:{}", path.display()), options).await.unwrap()
}

/// Starts the test `test` again as a child process.
fn spawn_child(test: &str, role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Writes one line to the parent atomically. The leading line break separates it from output of the test runner.
fn report(line: &str) {
    let mut out = std::io::stdout().lock();
    // The parent may have closed the pipe.
    let _ = out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush());
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The event that the child writes as number `seq` of `run`.
fn event(run: usize, seq: u64) -> String {
    format!("{run}:{seq}:{}", "x".repeat((seq % 97) as usize))
}

/// Appends to several runs forever and reports the end of the log after each append.
async fn append_forever(path: &Path, durability: Durability) {
    let store = open_at(path, durability).await;
    store.renew(&"child".into(), TTL).await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..RUNS {
        let store = store.clone();
        writers.spawn(async move {
            let name = format!("r{number}");
            let new = NewRun::new(name.as_str(), name.as_str(), "demo", "child");
            let Start::Created(run) = store.start(&owner(), new).await.unwrap() else { panic!("exists") };
            let mut append = Append::new(owner(), run.run, run.fence, Seq(0));
            append.durability = durability;
            loop {
                let events = 1 + append.first_seq.0 % 4;
                let numbers = append.first_seq.0..append.first_seq.0 + events;
                append.events = numbers.map(|seq| event(number, seq).into()).collect();
                append.first_seq = store.append(append.clone()).await.unwrap().next_seq;
                report(&format!("ack {number} {}", append.first_seq));
            }
        });
    }
    let ended = writers.join_next().await.is_some_and(|ended: Result<(), _>| ended.is_err());
    panic!("a writer has ended (panicked: {ended})");
}

fn check_kill(test: &str, durability: Durability) {
    if let Some(path) = std::env::var_os(ROLE) {
        return runtime().block_on(append_forever(Path::new(&path), durability));
    }
    let folder = tempfile::tempdir().unwrap();
    for (round, acks) in [0, 1, 2, 5, 17, 60, 200, 700].into_iter().enumerate() {
        let path = folder.path().join(format!("{round}.db"));
        let mut child = spawn_child(test, path.to_str().unwrap());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged: HashMap<usize, u64> = HashMap::new();
        let mut record = |line: String| {
            let mut words = line.split(' ');
            // Skips a line truncated by the kill and lines of the test runner.
            let (Some("ack"), Some(run), Some(seq), None) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                return false;
            };
            acknowledged.insert(run.parse().unwrap(), seq.parse().unwrap());
            true
        };
        let mut received = 0;
        while received < acks {
            received += usize::from(record(lines.next().expect("the child lives").unwrap()));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        lines.map_while(Result::ok).for_each(|line| {
            record(line);
        });
        if path.exists() {
            runtime().block_on(check_logs(&path, &acknowledged));
        } else {
            assert_eq!(acks, 0, "killed before there was a file");
        }
    }
}

/// Checks that no acknowledged event is lost, that logs have no gaps, and that they can be continued.
async fn check_logs(path: &Path, acknowledged: &HashMap<usize, u64>) {
    let store = open_at(path, Durability::Os).await;
    store.verify().await.unwrap();
    let dead = Holder::from("child");
    store.retire(&dead).await.unwrap();
    store.renew(&"parent".into(), TTL).await.unwrap();
    let orphans = store.orphans(99).await.unwrap();
    assert!(acknowledged.len() <= orphans.len());
    for (key, seen) in orphans {
        let number: usize = key.run.trim_start_matches('r').parse().unwrap();
        let acked = acknowledged.get(&number).copied().unwrap_or(0);
        assert!(
            seen.next_seq.0 >= acked,
            "run {number}: {acked} were acknowledged, {} are stored",
            seen.next_seq
        );
        let taken = store.take_over(&key, seen.fence, &"parent".into()).await.unwrap();
        let mut end = Append::new(owner(), key.run.clone(), taken.fence, taken.next_seq);
        end.events = vec!["end".into()];
        end.change.status = Some(StatusChange::to(RunStatus::Failed));
        store.append(end).await.unwrap();
        let Log::Exact(log) = store.read(&owner(), &key.run, None, usize::MAX).await.unwrap() else {
            panic!()
        };
        assert_eq!(log.events.len() as u64, seen.next_seq.0 + 1);
        for (seq, found) in (0..seen.next_seq.0).zip(&log.events) {
            assert_eq!(found, &event(number, seq).as_bytes());
        }
        assert!(store.lease(&owner(), &taken.thread).await.unwrap().is_none());
    }
}

#[test]
fn p2_a_kill_at_durability_memory_loses_nothing_acknowledged() {
    check_kill("p2_a_kill_at_durability_memory_loses_nothing_acknowledged", Durability::Memory);
}

#[test]
fn p2_a_kill_at_durability_os_loses_nothing_acknowledged() {
    check_kill("p2_a_kill_at_durability_os_loses_nothing_acknowledged", Durability::Os);
}

#[test]
fn p2_a_kill_at_durability_fsync_loses_nothing_acknowledged() {
    check_kill("p2_a_kill_at_durability_fsync_loses_nothing_acknowledged", Durability::Fsync);
}

const THREADS: usize = 60;

/// Tries to start a run in every thread, and writes to the runs that start.
async fn race_for_threads(path: &Path, name: &str) {
    let store = open_at(path, Durability::Os).await;
    store.renew(&name.into(), TTL).await.unwrap();
    for thread in 0..THREADS {
        let new = NewRun::new(format!("t{thread}"), format!("{name}-{thread}"), "demo", name);
        match store.start(&owner(), new).await.unwrap() {
            Start::Created(run) => {
                report(&format!("got {thread} {}", run.fence.0));
                for seq in 0..5 {
                    let mut append = Append::new(owner(), run.run.clone(), run.fence, Seq(seq));
                    append.events = vec![format!("{name} {seq}").into()];
                    store.append(append).await.unwrap();
                }
            }
            Start::Held(lease) => assert_ne!(lease.holder.as_str(), name),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn p4_racing_processes_get_each_thread_once() {
    let test = "p4_racing_processes_get_each_thread_once";
    if let Ok(role) = std::env::var(ROLE) {
        let (name, path) = role.split_once(' ').unwrap();
        return runtime().block_on(race_for_threads(Path::new(path), name));
    }
    let folder = tempfile::tempdir().unwrap();
    // The file does not exist: the children race to create it too.
    let path = folder.path().join("store.db");
    let children: Vec<Child> =
        (0..3).map(|number| spawn_child(test, &format!("child{number} {}", path.display()))).collect();
    let mut got: HashMap<String, u64> = HashMap::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let Some((thread, fence)) = line.strip_prefix("got ").and_then(|rest| rest.split_once(' '))
            else {
                continue;
            };
            let before = got.insert(thread.to_owned(), fence.parse().unwrap());
            assert_eq!(before, None, "thread {thread} was granted twice");
        }
    }
    assert_eq!(got.len(), THREADS);
    let mut fences: Vec<u64> = got.into_values().collect();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), THREADS, "no fencing token is issued twice");
    runtime().block_on(async {
        let store = open_at(&path, Durability::Os).await;
        store.verify().await.unwrap();
        let stats = store.stats().await.unwrap();
        assert_eq!((stats.threads, stats.runs, stats.events), (60, 60, 300));
    });
}
