//! Faults of the SQLite file: locked, full, damaged, foreign, truncated.

#![cfg(feature = "sqlite")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use agentwire_store::*;
use bytes::Bytes;

fn ada() -> Owner {
    Owner::new("acme", "ada", "demo")
}

fn new_run(name: &str) -> NewRun {
    NewRun::new(name, name, "demo", "g")
}

async fn open_with(path: &Path, sqlite: SqliteOptions) -> Result<Arc<dyn Store>, StoreError> {
    open(&format!("sqlite:{}", path.display()), Options { sqlite, ..Options::default() }).await
}

async fn open_at(path: &Path) -> Result<Arc<dyn Store>, StoreError> {
    open_with(path, SqliteOptions { busy_timeout: Duration::from_millis(50), ..Default::default() }).await
}

async fn start(store: &dyn Store, name: &str) -> Append {
    store.renew(&"g".into(), Duration::from_secs(3600)).await.unwrap();
    let Start::Created(run) = store.start(&ada(), new_run(name)).await.unwrap() else { panic!("exists") };
    Append::new(ada(), run.run, run.fence, Seq(0))
}

async fn events(store: &dyn Store, run: &str) -> Vec<Bytes> {
    match store.read(&ada(), &run.into(), None, usize::MAX).await.unwrap() {
        Log::Exact(log) => log.events,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn recovers_after_another_process_held_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open_at(&path).await.unwrap();
    let mut append = start(&*store, "r").await;
    append.events = vec!["a".into()];

    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let owner = ada();
    let (one, two) = tokio::join!(store.append(append.clone()), store.run(&owner, &append.run));
    assert!(matches!(one, Err(StoreError::Busy)), "{one:?}");
    assert!(two.is_ok(), "reads still work");
    assert!(matches!(store.probe().await, Err(StoreError::Busy)), "the health check fails too");
    other.execute_batch("ROLLBACK").unwrap();
    store.probe().await.unwrap();

    assert!(!store.append(append).await.unwrap().repeated);
    assert_eq!(events(&*store, "r").await, ["a"]);
}

#[tokio::test]
async fn a_full_store_stays_readable_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions { max_bytes: Some(400_000), ..Default::default() };
    let store = open_with(&folder.path().join("store.db"), options).await.unwrap();
    let mut append = start(&*store, "r").await;
    append.events = vec![vec![b'x'; 20_000].into()];
    let mut written = 0;
    let fault = loop {
        match store.append(append.clone()).await {
            Ok(appended) => append.first_seq = appended.next_seq,
            Err(fault) => break fault,
        }
        written += 1;
        assert!(written < 100, "the limit is enforced");
    };
    assert!(matches!(fault, StoreError::Full), "{fault:?}");
    assert!(written > 5);
    assert_eq!(events(&*store, "r").await.len(), written, "exactly the acknowledged events");
    store.verify().await.unwrap();

    // Larger than the room that is left, whether or not both are in one batch.
    let new = |name: &str| NewRun { input: "x".repeat(60_000).into(), ..new_run(name) };
    let owner = ada();
    let (a, b) = tokio::join!(store.start(&owner, new("a")), store.start(&owner, new("b")));
    assert!(matches!((&a, &b), (Err(StoreError::Full), Err(StoreError::Full))), "{a:?} {b:?}");

    store.delete_thread(&ada(), &"r".into()).await.unwrap();
    let mut append = start(&*store, "after").await;
    append.events = vec![vec![b'y'; 20_000].into()];
    store.append(append).await.unwrap();
    assert_eq!(events(&*store, "after").await.len(), 1);
}

#[tokio::test]
async fn rejects_files_and_addresses_that_are_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("garbage"), "this is not a database, and it is longer than a header\n".repeat(99)).unwrap();
    assert!(matches!(open_at(&at("garbage")).await, Err(StoreError::Corrupt(_))));

    let foreign = rusqlite::Connection::open(at("foreign")).unwrap();
    foreign.execute_batch("CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('x')").unwrap();
    drop(foreign);
    let before = fs::read(at("foreign")).unwrap();
    assert!(matches!(open_at(&at("foreign")).await, Err(StoreError::Foreign(_))));
    assert_eq!(fs::read(at("foreign")).unwrap(), before, "the file is unchanged");

    assert!(matches!(open_at(folder.path()).await, Err(StoreError::Io(_))), "a folder");
    assert!(matches!(open_at(&at("no/such/folder/store.db")).await, Err(StoreError::Io(_))));

    drop(open_at(&at("newer")).await.unwrap());
    let newer = rusqlite::Connection::open(at("newer")).unwrap();
    newer.execute_batch("INSERT INTO schema_version VALUES (1000, 0)").unwrap();
    drop(newer);
    assert!(matches!(open_at(&at("newer")).await, Err(StoreError::Version { found: 1000, .. })));

    for address in ["", "memory", "memory:x", "sqlite:", "x.db"] {
        let opened = open(address, Options::default()).await;
        assert!(matches!(opened, Err(StoreError::Address(_))), "{address:?}");
    }
}

/// Creates a closed store with two runs; returns the events of the first.
async fn create_store(path: &Path) -> Vec<Bytes> {
    let store = open_at(path).await.unwrap();
    let mut all = Vec::new();
    let mut append = start(&*store, "r").await;
    for number in 0..60 {
        append.events = vec![format!("{number} {}", "x".repeat(number * 7)).into()];
        all.extend(append.events.clone());
        append.first_seq = store.append(append.clone()).await.unwrap().next_seq;
    }
    start(&*store, "s").await;
    all
}

fn copy(from: &Path, to: &Path) {
    for end in ["", "-wal"] {
        let name = |path: &Path| PathBuf::from(format!("{}{end}", path.display()));
        if name(from).exists() {
            fs::copy(name(from), name(to)).unwrap();
        } else {
            let _ = fs::remove_file(name(to));
        }
    }
    let _ = fs::remove_file(format!("{}-shm", to.display()));
}

#[tokio::test]
async fn a_damaged_page_causes_an_error_but_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, damaged) = (folder.path().join("whole.db"), folder.path().join("damaged.db"));
    let all = create_store(&whole).await;
    let bytes = fs::read(&whole).unwrap();
    let mut detected = 0;
    for page in 0..bytes.len() / 4096 {
        for pattern in [0_u8, 0xff, 0x5a] {
            let mut bytes = bytes.clone();
            bytes[page * 4096..(page + 1) * 4096].fill(pattern);
            copy(&whole, &damaged);
            fs::write(&damaged, bytes).unwrap();
            let Ok(store) = open_at(&damaged).await else {
                detected += 1;
                continue;
            };
            detected += usize::from(store.verify().await.is_err());
            if let Ok(Log::Exact(log)) = store.read(&ada(), &"r".into(), None, usize::MAX).await {
                assert!(all.starts_with(&log.events) || all == log.events, "page {page}: a wrong event");
                assert_eq!(log.events.len(), all.len(), "page {page}: an unreported gap");
            }
            let _ = store.run(&ada(), &"r".into()).await;
            let _ = store.threads(&ada(), ThreadQuery::default(), 99).await;
            let _ = store.start(&ada(), new_run("new")).await;
            let _ = store.stats().await;
            let _ = store.orphans(9).await;
        }
    }
    assert!(detected > 10, "damage is detected: {detected}");
}

/// A file that SQLite finds in order may still contradict itself.
#[tokio::test]
async fn a_file_that_contradicts_itself_does_not_pass_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, damaged) = (folder.path().join("whole.db"), folder.path().join("damaged.db"));
    create_store(&whole).await;
    let db = rusqlite::Connection::open(&whole).unwrap();
    db.execute_batch(
        "UPDATE runs SET status = 'finished', next_seq = 60 WHERE run = 'r'; \
         UPDATE threads SET leased = NULL WHERE thread = 'r'",
    )
    .unwrap();
    drop(db);
    open_at(&whole).await.unwrap().verify().await.unwrap();
    let cases = [
        ("DELETE FROM log WHERE seq = (SELECT min(seq) FROM log WHERE seq > 0)", "a hole"),
        ("DELETE FROM log WHERE seq = (SELECT max(seq) FROM log)", "begin or end"),
        ("UPDATE log SET body = x'ff' WHERE seq = 0", "1 rows of logs whose events are damaged"),
        ("UPDATE log SET body = CAST(x'00000000' || body AS BLOB) WHERE seq = 0", "damaged"),
        ("DELETE FROM runs", "rows of logs without a run"),
        ("DELETE FROM threads", "without a thread"),
        ("UPDATE threads SET leased = 99", "an ended or missing run"),
        ("UPDATE runs SET status = 'running'", "running runs without their thread"),
        ("UPDATE runs SET kept = 'compacted'", "without their compacted log"),
    ];
    for (damage, finding) in cases {
        copy(&whole, &damaged);
        let db = rusqlite::Connection::open(&damaged).unwrap();
        assert!(db.execute(damage, []).unwrap() > 0, "{damage}");
        drop(db);
        let found = open_at(&damaged).await.unwrap().verify().await;
        let Err(StoreError::Corrupt(text)) = found else { panic!("{damage}: {found:?}") };
        assert!(text.contains(finding), "{damage}: {text}");
    }
}

#[tokio::test]
async fn a_truncated_write_ahead_log_loses_only_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let (live, cut) = (folder.path().join("live.db"), folder.path().join("cut.db"));
    let store = open_at(&live).await.unwrap();
    let mut append = start(&*store, "r").await;
    for number in 0..30 {
        append.events = vec![number.to_string().into()];
        append.first_seq = store.append(append.clone()).await.unwrap().next_seq;
    }
    let log = PathBuf::from(format!("{}-wal", live.display()));
    let wal = fs::read(&log).unwrap();
    let cuts = (1..4096).step_by(97).chain((4096..wal.len()).step_by(2999));
    for lost in cuts {
        for garbled in [false, true] {
            copy(&live, &cut);
            let mut wal = wal.clone();
            let keep = wal.len() - lost;
            if garbled {
                wal[keep..].fill(0xa5);
            } else {
                wal.truncate(keep);
            }
            fs::write(format!("{}-wal", cut.display()), wal).unwrap();
            for _ in 0..2 {
                let Ok(store) = open_at(&cut).await else { panic!("{lost} bytes lost: cannot be opened") };
                store.verify().await.unwrap();
                let Ok(run) = store.run(&ada(), &"r".into()).await else { continue };
                let expected: Vec<String> = (0..run.next_seq.0).map(|number| number.to_string()).collect();
                assert_eq!(events(&*store, "r").await, expected, "{lost} bytes lost");
                // The log continues at its new end.
                let mut next = Append { first_seq: run.next_seq, ..append.clone() };
                next.events = vec![run.next_seq.to_string().into()];
                store.append(next).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn backup_is_consistent_while_the_store_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_at(&folder.path().join("store.db")).await.unwrap();
    let mut append = start(&*store, "r").await;
    append.events = vec!["0".into()];
    append.first_seq = store.append(append.clone()).await.unwrap().next_seq;
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 1..400 {
                append.events = vec![number.to_string().into()];
                append.first_seq = store.append(append.clone()).await.unwrap().next_seq;
            }
        }
    });
    let to = folder.path().join("copy.db");
    store.backup(&to).await.unwrap();
    writer.await.unwrap();
    let copy = open_at(&to).await.unwrap();
    copy.verify().await.unwrap();
    let found = events(&*copy, "r").await;
    let expected: Vec<String> = (0..found.len()).map(|number| number.to_string()).collect();
    assert!(!found.is_empty());
    assert_eq!(found, expected);

    let refused = store.backup(&to).await;
    assert!(matches!(refused, Err(StoreError::Io(_))), "an existing file is never overwritten");
    assert!(store.backup(&folder.path().join("no/such/copy.db")).await.is_err());
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().ends_with(".partial")));
}

#[tokio::test]
async fn vacuum_releases_space() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open_at(&path).await.unwrap();
    let mut append = start(&*store, "r").await;
    append.events = vec![vec![b'x'; 1 << 20].into()];
    for _ in 0..8 {
        append.first_seq = store.append(append.clone()).await.unwrap().next_seq;
    }
    let before = store.stats().await.unwrap();
    store.delete_thread(&ada(), &"r".into()).await.unwrap();
    assert!(store.stats().await.unwrap().free_bytes > 7 << 20);
    store.vacuum().await.unwrap();
    let after = store.stats().await.unwrap();
    assert!(after.bytes < before.bytes / 4, "{after:?}");
    assert_eq!(after.free_bytes, 0);
    assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
    store.verify().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_append_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_at(&folder.path().join("store.db")).await.unwrap();
    let mut append = start(&*store, "r").await;
    for number in 0..50_u64 {
        append.events = vec![number.to_string().into()];
        append.first_seq = Seq(number);
        {
            let mut dropped = store.append(append.clone());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            // Enqueues the append and is dropped before the result arrives.
            let _ = dropped.as_mut().poll(&mut context);
        }
        let appended = store.append(append.clone()).await.unwrap();
        assert_eq!(appended.next_seq, Seq(number + 1));
    }
    assert_eq!(events(&*store, "r").await.len(), 50);
}

#[tokio::test]
async fn opens_a_file_of_version_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch(include_str!("fixtures/version_1.sql")).unwrap();
    drop(file);
    let store = open_at(&path).await.unwrap();
    let thread = &"weather".into();
    assert_eq!(
        store.thread(&ada(), thread).await.unwrap().metadata.as_deref(),
        Some("{\"title\":\"Weather\"}")
    );
    let state = State { seq: 2, body: Some("{\"city\":\"Oslo\"}".into()) };
    assert_eq!(store.state(&ada(), thread).await.unwrap(), state);
    assert_eq!(store.messages(&ada(), thread).await.unwrap().as_deref(), Some("[{\"id\":\"m1\"}]"));
    assert_eq!(events(&*store, "exact").await, ["{\"n\":0}", "{\"n\":1}", "{\"n\":2}"]);
    let log = store.read(&ada(), &"compacted".into(), None, usize::MAX).await.unwrap();
    let status = RunStatus::Finished;
    assert_eq!(log, Log::Compacted { events: vec!["{\"all\":1}".into()], next_seq: Seq(9), status });
    let pending = store.pending(&ada(), thread, PendingFilter::Open).await.unwrap();
    assert_eq!((pending.len(), pending[0].id.as_str(), pending[0].run.as_str()), (1, "approve", "exact"));
    assert_eq!(store.feedback(&ada(), thread, None, 9).await.unwrap().items.len(), 1);
    // The migrated file is writable.
    let orphans = store.orphans(9).await.unwrap();
    assert_eq!((orphans.len(), orphans[0].0.run.as_str()), (1, "lost"));
    store.renew(&"g".into(), Duration::from_secs(3600)).await.unwrap();
    let taken = store.take_over(&orphans[0].0, orphans[0].1.fence, &"g".into()).await.unwrap();
    assert!(taken.fence > Fence(7));
    let mut end = Append::new(ada(), taken.run, taken.fence, taken.next_seq);
    end.events = vec!["end".into()];
    end.change.status = Some(StatusChange::to(RunStatus::Failed));
    store.append(end).await.unwrap();
    assert_eq!(events(&*store, "lost").await, ["{\"n\":0}", "end"]);
}

/// Two agents shared their threads in version 1; see the file.
#[tokio::test]
async fn threads_of_version_1_go_to_the_agent_of_their_latest_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch(include_str!("fixtures/version_1_two_agents.sql")).unwrap();
    let count = |table: &str| -> i64 {
        file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    let tables = ["threads", "runs", "inputs", "log", "messages", "states", "pending", "feedback"];
    let before = tables.map(count);
    let store = open_at(&path).await.unwrap();
    assert_eq!(tables.map(count), before, "nothing is lost");

    let owner = |user: &str, agent: &str| Owner::new("default", user, agent);
    let names = async |user: &str, agent: &str| {
        let page = store.threads(&owner(user, agent), ThreadQuery::default(), 99).await.unwrap();
        page.items.iter().map(|thread| thread.thread.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names("ada", "shop").await, ["mine", "both"]);
    assert_eq!(names("ada", "support").await, ["waits", "back"]);
    assert_eq!(names("eve", "support").await, ["both"]);
    assert_eq!(names("eve", "shop").await, Vec::<String>::new());
    // A thread has all its runs, those of the other agent too.
    let (ada, both) = (owner("ada", "shop"), "both".into());
    let runs = store.runs(&ada, &both, None, 99).await.unwrap().items;
    let agents: Vec<_> = runs.iter().map(|run| (run.run.as_str(), &*run.agent)).collect();
    assert_eq!(agents, [("r2", "shop"), ("r1", "support")]);
    let text = store.messages(&ada, &both).await.unwrap().unwrap();
    assert!(text.contains("I am support") && text.contains("I am shop"), "{text}");
    assert_eq!(store.feedback(&ada, &both, None, 9).await.unwrap().items.len(), 1);
    let log = store.read(&ada, &"r1".into(), None, usize::MAX).await.unwrap();
    let Log::Exact(log) = log else { panic!("not exact: {log:?}") };
    assert_eq!(log.events.len(), 6);
    let open = store.pending(&owner("ada", "support"), &"waits".into(), PendingFilter::Open).await.unwrap();
    assert_eq!((open.len(), open[0].run.as_str()), (1, "r7"));
    // Its id on the agent's server is the one of before; the other agent gets another one.
    assert_eq!(store.upstream_scope(&ada, &both).await.unwrap(), None);
    assert_eq!(
        store.upstream_scope(&owner("ada", "support"), &both).await.unwrap().as_deref(),
        Some("support")
    );
    store.verify().await.unwrap();
}

/// The rest of the write-ahead log is moved to the database when nobody writes, and its file emptied.
#[tokio::test]
async fn the_write_ahead_log_shrinks_when_idle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open_at(&path).await.unwrap();
    let mut append = start(&*store, "r").await;
    for number in 0..200 {
        append.first_seq = Seq(number);
        append.events = vec![vec![b'x'; 100_000].into()];
        store.append(append.clone()).await.unwrap();
    }
    let wal = folder.path().join("store.db-wal");
    let size = || fs::metadata(&wal).map_or(0, |file| file.len());
    assert!(size() > 0);
    for _ in 0..1200 {
        if size() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(size(), 0);
    assert_eq!(events(&*store, "r").await.len(), 200);
}

#[cfg(unix)]
#[tokio::test]
async fn a_deleted_or_replaced_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, aside) = (folder.path().join("store.db"), folder.path().join("aside.db"));
    let store = open_at(&path).await.unwrap();
    let mut append = start(&*store, "r").await;
    append.events = vec!["a".into()];
    store.append(append.clone()).await.unwrap();
    fs::rename(&path, &aside).unwrap();
    append.first_seq = Seq(1);
    assert!(matches!(store.append(append.clone()).await, Err(StoreError::Io(_))), "deleted");
    assert!(matches!(store.probe().await, Err(StoreError::Io(_))));
    assert!(matches!(store.key_changes(0).await, Err(StoreError::Io(_))), "nothing is read from it either");
    assert!(!path.exists(), "no empty file takes its place");
    fs::copy(&aside, &path).unwrap();
    assert!(matches!(store.append(append.clone()).await, Err(StoreError::Io(_))), "replaced");
    for _ in 0..3 {
        assert!(matches!(store.key_changes(0).await, Err(StoreError::Io(_))), "nor from the other file");
    }
    fs::rename(&aside, &path).unwrap();
    store.append(append).await.unwrap();
    assert_eq!(events(&*store, "r").await, ["a", "a"]);
}
