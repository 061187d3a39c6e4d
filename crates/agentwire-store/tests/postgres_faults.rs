//! Faults of a PostgreSQL server and of the connections to it.

#![cfg(feature = "postgres")]

mod postgres_server;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use agentwire_store::*;
use postgres_server::Server;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
    sync::watch,
};

const LEASE: Duration = Duration::from_secs(3600);

fn owner() -> Owner {
    Owner::new("acme", "ada", "demo")
}

async fn open_at(address: &str, durability: Durability) -> Arc<dyn Store> {
    let postgres = PostgresOptions { durability, ..PostgresOptions::default() };
    open(address, Options { postgres, ..Options::default() }).await.unwrap()
}

async fn start(store: &dyn Store, name: &str) -> Run {
    store.renew(&"gateway".into(), LEASE).await.unwrap();
    match store.start(&owner(), NewRun::new(name, name, "demo", "gateway")).await.unwrap() {
        Start::Created(run) => run,
        other => panic!("not created: {other:?}"),
    }
}

/// Repeats a call while the server cannot be reached, as a gateway does.
async fn persist<T, F: Future<Output = Result<T, StoreError>>>(mut call: impl FnMut() -> F) -> T {
    loop {
        match call().await {
            Ok(value) => return value,
            Err(error) if error.is_fault() => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn read_all(store: &dyn Store, run: &RunId) -> Vec<String> {
    let mut events: Vec<String> = Vec::new();
    loop {
        let after = events.len().checked_sub(1).map(|last| Seq(last as u64));
        let Log::Exact(slice) = persist(|| async { store.read(&owner(), run, after, 1 << 20).await }).await
        else {
            panic!()
        };
        events.extend(slice.events.iter().map(|event| String::from_utf8(event.to_vec()).unwrap()));
        if events.len() as u64 == slice.next_seq.0 {
            return events;
        }
    }
}

/// Appends to several runs while the server is killed, with all its processes, and started again.
async fn kill_while_appending(durability: Durability) {
    const RUNS: usize = 4;
    let mut server = Server::start("fsync=on");
    let store = open_at(&server.address, durability).await;
    let stop = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(Mutex::new(vec![0_u64; RUNS]));
    let mut writers = Vec::new();
    for number in 0..RUNS {
        let run = start(&*store, &format!("r{number}")).await;
        let (store, stop, progress) = (store.clone(), stop.clone(), progress.clone());
        writers.push(tokio::spawn(async move {
            let mut append = Append::new(owner(), run.run, run.fence, Seq(0));
            while !stop.load(Ordering::Relaxed) {
                let first = append.first_seq.0;
                append.events =
                    (first..first + 1 + first % 3).map(|seq| format!("{number}:{seq}").into()).collect();
                append.first_seq = persist(|| store.append(append.clone())).await.next_seq;
                // Acknowledged from here on.
                progress.lock().unwrap()[number] = append.first_seq.0;
            }
            append
        }));
    }
    for kill in 0..6_u64 {
        let before: u64 = progress.lock().unwrap().iter().sum();
        while progress.lock().unwrap().iter().sum::<u64>() < before + 5 + kill * 7 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        server.kill();
        let acknowledged = progress.lock().unwrap().clone();
        server.start_again();
        for (number, acknowledged) in acknowledged.iter().enumerate() {
            let run = persist(|| async { store.run(&owner(), &format!("r{number}").into()).await }).await;
            assert!(
                run.next_seq.0 >= *acknowledged,
                "kill {kill}: {acknowledged} were acknowledged, {} are stored",
                run.next_seq
            );
        }
    }
    stop.store(true, Ordering::Relaxed);
    for (number, writer) in writers.into_iter().enumerate() {
        let append = writer.await.unwrap();
        let expected: Vec<String> = (0..append.first_seq.0).map(|seq| format!("{number}:{seq}")).collect();
        assert_eq!(read_all(&*store, &append.run).await, expected, "whole, in order, nothing twice");
    }
    persist(|| store.verify()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_a_killed_server_loses_nothing_acknowledged() {
    kill_while_appending(Durability::Os).await;
}

/// The moment at which the proxy cuts a connection, relative to a `CommandComplete` message of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Before,
    Within,
    After,
}

/// A proxy that understands message boundaries of the protocol and cuts a connection once when it is armed.
#[derive(Clone, Default)]
struct Proxy {
    armed: Arc<Mutex<Option<(Cut, &'static str)>>>,
    cuts: Arc<Mutex<u32>>,
    /// True if the next cut holds all connections.
    holds: Arc<AtomicBool>,
    /// True while messages of the server are held.
    held: Arc<watch::Sender<bool>>,
}

impl Proxy {
    async fn listen(&self, server: String) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = self.clone();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (proxy, server) = (proxy.clone(), server.clone());
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(&server).await else { return };
                    let (mut from_client, to_client) = client.into_split();
                    let (from_server, mut to_server) = server.into_split();
                    let forward = tokio::spawn(async move {
                        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
                    });
                    let _ = proxy.back(from_server, to_client).await;
                    forward.abort();
                });
            }
        });
        port
    }

    /// Copies messages of the server, each a type byte and a length. Ends, and so cuts, at the armed one.
    async fn back(
        &self,
        mut from: tokio::net::tcp::OwnedReadHalf,
        mut to: OwnedWriteHalf,
    ) -> std::io::Result<()> {
        let mut is_first = true;
        loop {
            let kind = from.read_u8().await?;
            // The answer to the request for TLS is one byte.
            if std::mem::take(&mut is_first) && kind == b'N' {
                to.write_all(&[kind]).await?;
                continue;
            }
            let length = from.read_u32().await?;
            let mut message = vec![kind];
            message.extend_from_slice(&length.to_be_bytes());
            message.resize(1 + length as usize, 0);
            from.read_exact(&mut message[5..]).await?;
            let cut = {
                let mut armed = self.armed.lock().unwrap();
                let is_armed =
                    armed.is_some_and(|(_, tag)| kind == b'C' && message[5..].starts_with(tag.as_bytes()));
                if is_armed { armed.take().map(|(cut, _)| cut) } else { None }
            };
            if cut.is_some() && self.holds.swap(false, Ordering::SeqCst) {
                self.held.send_replace(true);
            } else {
                let _ = self.held.subscribe().wait_for(|held| !held).await;
            }
            let sent = match cut {
                None | Some(Cut::After) => message.len(),
                Some(Cut::Within) => message.len() / 2,
                Some(Cut::Before) => 0,
            };
            to.write_all(&message[..sent]).await?;
            if cut.is_some() {
                *self.cuts.lock().unwrap() += 1;
                return Ok(());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p8_an_append_that_is_cut_at_its_commit_is_stored_once() {
    let address = postgres_server::fresh();
    let place = address.split_once('@').unwrap().1.split_once('/').unwrap().0.to_owned();
    let proxy = Proxy::default();
    let port = proxy.listen(place.clone()).await;
    let store = open_at(&address.replace(&place, &format!("127.0.0.1:{port}")), Durability::Os).await;
    let mut cuts = 0;
    for (number, cut) in [Cut::Before, Cut::Within, Cut::After].into_iter().enumerate() {
        let run = start(&*store, &format!("r{number}")).await;
        let mut append = Append::new(owner(), run.run.clone(), run.fence, Seq(0));
        // The first one finds the run and a connection; the second is cut.
        for (seq, is_cut) in [(0, false), (1, true), (2, false)] {
            append.first_seq = Seq(seq);
            append.events = vec![format!("e{seq}").into()];
            *proxy.armed.lock().unwrap() = is_cut.then_some((cut, "SELECT"));
            persist(|| store.append(append.clone())).await;
            cuts += u32::from(is_cut);
            assert_eq!(*proxy.cuts.lock().unwrap(), cuts);
        }
        // The ending, with a state, a question and a new status, is cut at its COMMIT.
        append.first_seq = Seq(3);
        append.events = vec!["end".into()];
        append.change = Change {
            status: Some(StatusChange::to(RunStatus::Waiting)),
            state: Some(StateChange { expected: 0, body: "{\"n\":1}".into() }),
            messages: Some("[1]".into()),
            pending: vec![NewPending { id: "p".into(), kind: "k".into(), body: "{}".into(), ttl: None }],
            ..Change::default()
        };
        *proxy.armed.lock().unwrap() = Some((cut, "COMMIT"));
        let ended = persist(|| store.append(append.clone())).await;
        cuts += 1;
        assert_eq!((*proxy.cuts.lock().unwrap(), ended.next_seq), (cuts, Seq(4)), "{cut:?}");
        assert_eq!(read_all(&*store, &run.run).await, ["e0", "e1", "e2", "end"], "{cut:?}");
        let state = store.state(&owner(), &run.thread).await.unwrap();
        assert_eq!((state.seq, state.body.as_deref()), (1, Some("{\"n\":1}")), "applied once, {cut:?}");
        let open = store.pending(&owner(), &run.thread, PendingFilter::Open).await.unwrap();
        assert_eq!(open.len(), 1, "{cut:?}");
        assert!(store.lease(&owner(), &run.thread).await.unwrap().is_none());
        // A start that is cut creates one run.
        *proxy.armed.lock().unwrap() = Some((cut, "SELECT"));
        let new = NewRun::new(run.thread.clone(), format!("next{number}"), "demo", "gateway");
        let started = persist(|| async { store.start(&owner(), new.clone()).await }).await;
        cuts += 1;
        assert_eq!(*proxy.cuts.lock().unwrap(), cuts, "{cut:?}");
        assert!(matches!(started, Start::Created(_) | Start::Exists(_)), "{started:?}");
        assert_eq!(store.runs(&owner(), &run.thread, None, 9).await.unwrap().items.len(), 2, "{cut:?}");
    }
    store.verify().await.unwrap();
}

/// A sender that is told of a failure sends again, so that a failure after the command was stored would execute it twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p8_a_command_is_executed_once_if_the_connection_of_its_sender_is_cut() {
    let address = postgres_server::fresh();
    let place = address.split_once('@').unwrap().1.split_once('/').unwrap().0.to_owned();
    let proxy = Proxy::default();
    let port = proxy.listen(place.clone()).await;
    let sender = open_at(&address.replace(&place, &format!("127.0.0.1:{port}")), Durability::Os).await;
    let holder = open_at(&address, Durability::Os).await;
    let arm = |cut, tag| *proxy.armed.lock().unwrap() = Some((cut, tag));
    let cuts = || *proxy.cuts.lock().unwrap();
    for (number, cut) in [Cut::Before, Cut::Within, Cut::After].into_iter().enumerate() {
        // When the command is stored, while its reply is waited for, and when it is removed.
        for tag in ["INSERT", "SELECT", "DELETE"] {
            let name = format!("{tag}{number}");
            let run = start(&*holder, &name).await;
            let before = cuts();
            if tag == "INSERT" {
                arm(cut, tag);
            }
            let sent = tokio::spawn({
                let (sender, key) = (sender.clone(), RunKey { owner: owner(), run: run.run.clone() });
                async move { sender.send(&key, "patch".into(), Duration::from_secs(30)).await }
            });
            let taken = holder.inbox(&"gateway".into()).await.unwrap();
            let bodies: Vec<_> = taken.iter().map(|command| (&*command.run.run, &*command.body)).collect();
            assert_eq!(bodies, [(&*name, "patch")], "{cut:?}");
            if tag != "INSERT" {
                arm(cut, tag);
            }
            if tag == "SELECT" {
                while cuts() == before {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            holder.reply(taken[0].id, taken[0].fence, "done".into()).await.unwrap();
            assert_eq!(sent.await.unwrap().unwrap(), Delivery::Replied("done".into()), "{name} {cut:?}");
            assert_eq!(cuts(), before + 1, "{name} {cut:?}");
        }
    }
    let open = tokio::time::timeout(Duration::from_millis(300), holder.inbox(&"gateway".into())).await;
    assert!(open.is_err(), "no command was stored twice: {open:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_were_taken_by_a_lost_call_are_taken_once() {
    let address = postgres_server::fresh();
    let place = address.split_once('@').unwrap().1.split_once('/').unwrap().0.to_owned();
    let proxy = Proxy::default();
    let port = proxy.listen(place.clone()).await;
    let holder = open_at(&address.replace(&place, &format!("127.0.0.1:{port}")), Durability::Os).await;
    let sender = open_at(&address, Durability::Os).await;
    for (number, cut) in [Cut::Before, Cut::Within, Cut::After].into_iter().enumerate() {
        let name = format!("run{number}");
        let run = start(&*sender, &name).await;
        let sent = tokio::spawn({
            let (sender, key) = (sender.clone(), RunKey { owner: owner(), run: run.run.clone() });
            async move { sender.send(&key, "stop".into(), Duration::from_secs(300)).await }
        });
        *proxy.armed.lock().unwrap() = Some((cut, "UPDATE"));
        let taken = loop {
            if let Ok(taken) = holder.inbox(&"gateway".into()).await {
                break taken;
            }
        };
        assert_eq!(*proxy.cuts.lock().unwrap(), 1 + number as u32, "{cut:?}");
        let bodies: Vec<_> = taken.iter().map(|command| (&*command.run.run, &*command.body)).collect();
        assert_eq!(bodies, [(&*name, "stop")], "{cut:?}");
        holder.reply(taken[0].id, taken[0].fence, "done".into()).await.unwrap();
        assert_eq!(sent.await.unwrap().unwrap(), Delivery::Replied("done".into()), "{cut:?}");
    }
    let open = tokio::time::timeout(Duration::from_millis(300), holder.inbox(&"gateway".into())).await;
    assert!(open.is_err(), "no command is taken twice: {open:?}");
}

/// The take has found the command, and the run is taken over before the take is committed. Its answer is lost with its holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_that_overlaps_a_take_over_leaves_the_command_to_the_next_holder() {
    let address = postgres_server::fresh();
    let holder = open_at(&address, Durability::Os).await;
    let next = open_at(&address, Durability::Os).await;
    let (base, schema) = address.split_once("?schema=").unwrap();
    let (client, connection) = tokio_postgres::connect(base, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let (locker, connection) = tokio_postgres::connect(base, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let run = start(&*holder, "r").await;
    let key = RunKey { owner: owner(), run: run.run.clone() };
    let sent = tokio::spawn({
        let (next, key) = (next.clone(), key.clone());
        async move { next.send(&key, "stop".into(), Duration::from_secs(300)).await }
    });
    let waiting = async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1";
        client.query_one(sql, &[&format!("%{schema}.%")]).await.unwrap().get::<_, i64>(0)
    };
    let pause = || tokio::time::sleep(Duration::from_millis(5));
    let commands = format!("SELECT id FROM {schema}.commands");
    while client.execute(&commands, &[]).await.unwrap() == 0 {
        pause().await;
    }
    locker.batch_execute(&format!("BEGIN; {commands} FOR UPDATE")).await.unwrap();
    let lost = tokio::spawn({
        let holder = holder.clone();
        async move { while holder.inbox(&"gateway".into()).await.is_err() {} }
    });
    while waiting().await == 0 {
        pause().await;
    }
    holder.retire(&"gateway".into()).await.unwrap();
    next.renew(&"gateway-2".into(), LEASE).await.unwrap();
    let taken_over = tokio::spawn({
        let (next, key) = (next.clone(), key.clone());
        async move { persist(|| async { next.take_over(&key, run.fence, &"gateway-2".into()).await }).await }
    });
    while waiting().await < 2 && !taken_over.is_finished() {
        pause().await;
    }
    locker.batch_execute("COMMIT").await.unwrap();
    taken_over.await.unwrap();
    lost.abort();
    let taken = tokio::time::timeout(Duration::from_secs(120), next.inbox(&"gateway-2".into())).await;
    let taken = taken.expect("the command is open").unwrap();
    assert_eq!(&*taken[0].body, "stop");
    next.reply(taken[0].id, taken[0].fence, "done".into()).await.unwrap();
    assert_eq!(sent.await.unwrap().unwrap(), Delivery::Replied("done".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_whose_commit_is_cut_is_stored_once() {
    let address = postgres_server::fresh();
    let place = address.split_once('@').unwrap().1.split_once('/').unwrap().0.to_owned();
    let proxy = Proxy::default();
    let port = proxy.listen(place.clone()).await;
    let store = open_at(&address.replace(&place, &format!("127.0.0.1:{port}")), Durability::Os).await;
    let new = NewThread { thread: "t".into(), thread_ids: None, metadata: None };
    store.create_thread(&owner(), new).await.unwrap();
    for (number, cut) in [Cut::Before, Cut::Within, Cut::After].into_iter().enumerate() {
        let body = format!("[{number}]");
        *proxy.armed.lock().unwrap() = Some((cut, "COMMIT"));
        let state = StateChange { expected: number as u64, body: body.clone().into() };
        let change = ThreadChange { state: Some(state), ..ThreadChange::default() };
        let changed = store.update_thread(&owner(), &"t".into(), change).await.unwrap();
        assert_eq!(changed.state_seq, 1 + number as u64, "{cut:?}");
        assert_eq!(*proxy.cuts.lock().unwrap(), 1 + number as u32, "{cut:?}");
        let stored = store.state(&owner(), &"t".into()).await.unwrap();
        assert_eq!((stored.seq, stored.body.as_deref()), (1 + number as u64, Some(&*body)), "{cut:?}");
    }
}

/// The answer to a COMMIT is lost, and another gateway changes the state before the store can look: a conflict would say that
/// the change was not made, and the caller would make it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_without_an_answer_that_others_have_followed_is_no_conflict() {
    let address = postgres_server::fresh();
    let place = address.split_once('@').unwrap().1.split_once('/').unwrap().0.to_owned();
    let proxy = Proxy::default();
    let port = proxy.listen(place.clone()).await;
    let store = open_at(&address.replace(&place, &format!("127.0.0.1:{port}")), Durability::Os).await;
    let other = open_at(&address, Durability::Os).await;
    let new = NewThread { thread: "t".into(), thread_ids: None, metadata: None };
    store.create_thread(&owner(), new).await.unwrap();
    let change = |expected, body: &str| {
        let state = StateChange { expected, body: body.into() };
        ThreadChange { state: Some(state), ..ThreadChange::default() }
    };
    proxy.holds.store(true, Ordering::SeqCst);
    *proxy.armed.lock().unwrap() = Some((Cut::Before, "COMMIT"));
    let mut held = proxy.held.subscribe();
    let (owner, thread) = (owner(), "t".into());
    let (cut_off, by_other) = tokio::join!(store.update_thread(&owner, &thread, change(0, "[1]")), async {
        held.wait_for(|held| *held).await.unwrap();
        let changed = other.update_thread(&owner, &thread, change(1, "[1,2]")).await;
        proxy.held.send_replace(false);
        changed
    });
    assert_eq!(by_other.unwrap().state_seq, 2);
    assert!(matches!(cut_off, Err(StoreError::Io(_))), "{cut_off:?}");
    // A change that was certainly not made is still a conflict.
    let late = store.update_thread(&owner, &thread, change(1, "[1,3]")).await;
    assert!(matches!(late, Err(StoreError::Conflict(_))), "{late:?}");
    assert_eq!(store.state(&owner, &thread).await.unwrap().body.as_deref(), Some("[1,2]"));
}

#[tokio::test]
async fn an_outdated_schema_is_migrated_by_the_command_only() {
    let address = postgres_server::fresh();
    let (found, latest) = PostgresStore::check_schema(&address).await.unwrap();
    assert_eq!(found, 0);
    let opened: Vec<_> = futures(&address).await;
    let failed: Vec<_> = opened.iter().filter_map(|opened| opened.as_ref().err()).collect();
    assert!(failed.is_empty(), "three gateways may start at once in an empty database: {failed:?}");
    assert_eq!(PostgresStore::check_schema(&address).await.unwrap(), (latest, latest));
    assert_eq!(PostgresStore::migrate(&address).await.unwrap(), (latest, latest), "nothing to do");
    postgres_server::psql(&address, "UPDATE agentwire.meta SET min_writer = 99, version = 99");
    let opened = open(&address, Options::default()).await;
    assert!(matches!(opened.err(), Some(StoreError::Version { found: 99, known }) if known == latest));
    postgres_server::psql(&address, "UPDATE agentwire.meta SET min_writer = 1, version = 0");
    let opened = open(&address, Options::default()).await;
    let error = opened.err().unwrap();
    assert!(matches!(error, StoreError::Outdated { found: 0, known } if known == latest));
    assert!(error.to_string().contains("agentwire store migrate"));
    // A later version that this code can still write.
    let later = latest + 1;
    postgres_server::psql(&address, &format!("UPDATE agentwire.meta SET min_writer = 1, version = {later}"));
    assert!(open(&address, Options::default()).await.is_ok());
}

async fn futures(address: &str) -> Vec<Result<Arc<dyn Store>, StoreError>> {
    let opening: Vec<_> = (0..3)
        .map(|_| {
            let address = address.to_owned();
            tokio::spawn(async move { open(&address, Options::default()).await })
        })
        .collect();
    let mut opened = Vec::new();
    for open in opening {
        opened.push(open.await.unwrap());
    }
    opened
}

/// Another server, or another history of the same one, raises the epoch: the numbers that readers have seen may be reused.
#[tokio::test]
async fn the_epoch_rises_when_the_server_is_another_one() {
    let address = postgres_server::fresh();
    let store = open_at(&address, Durability::Os).await;
    let run = start(&*store, "r").await;
    let mut append = Append::new(owner(), run.run.clone(), run.fence, Seq(0));
    append.events = vec!["old".into()];
    assert_eq!(store.append(append.clone()).await.unwrap().epoch, 0);
    drop(store);
    postgres_server::psql(&address, "UPDATE agentwire.meta SET timeline = timeline - 1");
    let store = open_at(&address, Durability::Os).await;
    append.first_seq = Seq(1);
    append.events = vec!["new".into()];
    assert_eq!(store.append(append).await.unwrap().epoch, 1);
    let Log::Exact(slice) = store.read(&owner(), &run.run, None, 1 << 20).await.unwrap() else { panic!() };
    assert_eq!((slice.epoch, slice.events.len()), (0, 1), "a slice ends where the epoch changes");
    let Log::Exact(slice) = store.read(&owner(), &run.run, Some(Seq(0)), 1 << 20).await.unwrap() else {
        panic!()
    };
    assert_eq!((slice.epoch, slice.events.len()), (1, 1));
    let taken = store
        .take_over(&RunKey { owner: owner(), run: run.run.clone() }, run.fence, &"gateway".into())
        .await
        .unwrap();
    assert!(taken.fence.0 > run.fence.0 + 1, "the epoch is part of the fencing token");
}

/// Data stored without the gateway's rules do not pass the check.
#[tokio::test]
async fn damaged_data_does_not_pass_the_check() {
    let cases = [
        ("DELETE FROM agentwire.log WHERE seq = 1", "a hole"),
        ("UPDATE agentwire.log SET body = '\\xff' WHERE seq = 2", "1 rows of logs whose events are damaged"),
        ("DELETE FROM agentwire.heads", "runs without a head"),
        ("UPDATE agentwire.threads SET leased = NULL", "running runs without their thread"),
    ];
    for (damage, finding) in cases {
        let address = postgres_server::fresh();
        let store = open_at(&address, Durability::Os).await;
        let run = start(&*store, "r").await;
        let mut append = Append::new(owner(), run.run.clone(), run.fence, Seq(0));
        append.events = vec!["event".into()];
        for number in 0..300 {
            append.first_seq = Seq(number);
            store.append(append.clone()).await.unwrap();
        }
        store.verify().await.unwrap();
        let sql = damage.to_owned();
        let at = address.clone();
        tokio::task::spawn_blocking(move || postgres_server::psql(&at, &sql)).await.unwrap();
        let found = store.verify().await;
        let Err(StoreError::Corrupt(text)) = found else { panic!("{damage}: {found:?}") };
        assert!(text.contains(finding), "{damage}: {text}");
    }
}

/// A copy keeps everything, in both directions.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_copy_to_postgres_and_back_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let first = open(&file("first.db"), Options::default()).await.unwrap();
    for (number, agent) in ["demo", "other"].into_iter().enumerate() {
        let owner = Owner::new("acme", "a\0da", agent);
        first.renew(&"gateway".into(), LEASE).await.unwrap();
        for (name, status) in [("ended", Some(RunStatus::Waiting)), ("live", None)] {
            let Start::Created(run) =
                first.start(&owner, NewRun::new("t", name, "demo", "gateway")).await.unwrap()
            else {
                panic!()
            };
            let mut append = Append::new(owner.clone(), run.run, run.fence, Seq(0));
            append.events = vec!["a".into(), "b".into()];
            first.append(append.clone()).await.unwrap();
            append.first_seq = Seq(2);
            append.events = vec![vec![0, 255, number as u8].into()];
            append.change.state = Some(StateChange {
                expected: u64::from(status.is_none()),
                body: format!("{{\"of\":\"{name}\"}}").into(),
            });
            append.change.messages = Some("[1]".into());
            append.change.pending =
                vec![NewPending { id: "p".into(), kind: "k".into(), body: "{}".into(), ttl: None }];
            append.change.status = status.map(StatusChange::to);
            first.append(append).await.unwrap();
        }
        let answers =
            AnswerSet { answers: vec![Answer { id: "p".into(), body: "1".into() }], by: "x".into() };
        first.answer(&owner, &"t".into(), answers, &"later".into()).await.unwrap();
        first.compact(&owner, &"ended".into(), vec!["ab".into()]).await.unwrap();
        let feedback = NewFeedback { thread: "t".into(), run: Some("ended".into()), body: "1".into() };
        first.add_feedback(&owner, feedback).await.unwrap();
    }
    let key = ApiKey {
        id: "key".into(),
        hash: vec![0, 255],
        tenant: "acme".into(),
        user: "ada".into(),
        permissions: "{}".into(),
        created: Time(1),
        expires: Some(Time(9)),
        revoked: Some(Time(8)),
        last_used: Some(Time(7)),
    };
    first.add_key(key.clone()).await.unwrap();
    let second = open_at(&postgres_server::fresh(), Durability::Os).await;
    let third = open(&file("third.db"), Options::default()).await.unwrap();
    let report = copy(&*first, &*second).await.unwrap();
    assert_eq!(report, CopyReport { threads: 2, runs: 4, keys: 1 });
    assert!(matches!(copy(&*first, &*second).await, Err(CopyError::NotEmpty)));
    assert_eq!(copy(&*second, &*third).await.unwrap(), report);
    second.verify().await.unwrap();
    let mut after = None;
    while let Some((place, thread)) = first.export(after).await.unwrap() {
        let (_, in_postgres) = second.export(after).await.unwrap().unwrap();
        let (_, back) = third.export(after).await.unwrap().unwrap();
        assert_eq!(in_postgres, thread);
        assert_eq!(back, thread);
        after = Some(place);
    }
    assert_eq!(second.key_changes(0).await.unwrap().keys, std::slice::from_ref(&key));
    assert_eq!(third.key_changes(0).await.unwrap().keys, [key]);
    assert_eq!(second.orphans(9).await.unwrap().len(), 2, "live runs arrive as orphans");
    let memory = open("memory:", Options::default()).await.unwrap();
    assert!(matches!(copy(&*first, &*memory).await, Err(CopyError::Write(StoreError::Unsupported { .. }))));
}

/// A reader at another gateway is woken by the notification of a watched run; one that is deleted ends the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_at_another_gateway_is_woken() {
    for parameters in ["", "&notify=false"] {
        let address = format!("{}{parameters}", postgres_server::fresh());
        let (here, there) =
            (open_at(&address, Durability::Os).await, open_at(&address, Durability::Os).await);
        let run = start(&*here, "r").await;
        let key = RunKey { owner: owner(), run: run.run.clone() };
        let mut append = Append::new(owner(), run.run.clone(), run.fence, Seq(0));
        for seq in 0..5 {
            let waiting = {
                let (there, key) = (there.clone(), key.clone());
                tokio::spawn(async move { there.changed(&key, Seq(seq)).await })
            };
            append.first_seq = Seq(seq);
            append.events = vec!["e".into()];
            here.append(append.clone()).await.unwrap();
            waiting.await.unwrap().unwrap();
            assert!(there.run(&owner(), &run.run).await.unwrap().next_seq > Seq(seq));
        }
        let waiting = {
            let (there, key) = (there.clone(), key.clone());
            tokio::spawn(async move { there.changed(&key, Seq(u64::MAX)).await })
        };
        here.delete_thread(&owner(), &run.thread).await.unwrap();
        waiting.await.unwrap().unwrap();
    }
}

/// Reads that hold all connections they may have do not hold up appends, endings and renewals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reads_leave_connections_to_writes() {
    let address = postgres_server::fresh();
    let store = open_at(&format!("{address}&pool=5"), Durability::Os).await;
    let run = start(&*store, "r").await;
    let locking = {
        let address = address.clone();
        // The limit of a lock is two seconds.
        let sql = "BEGIN; LOCK TABLE agentwire.feedback IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(1.5)";
        tokio::task::spawn_blocking(move || postgres_server::psql(&address, sql))
    };
    let schema = address.split("schema=").nth(1).unwrap().to_owned();
    let waiting = async |sql: &str| {
        let (address, sql) = (address.clone(), sql.replace("SCHEMA", &schema));
        tokio::task::spawn_blocking(move || postgres_server::psql(&address, &sql)).await.unwrap()
    };
    let locked = "SELECT count(*) FROM pg_locks WHERE relation = 'SCHEMA.feedback'::regclass AND granted";
    while waiting(locked).await == "0" && !locking.is_finished() {}
    let reads: Vec<_> = (0..6)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.feedback(&owner(), &"r".into(), None, 9).await })
        })
        .collect();
    let mut append = Append::new(owner(), run.run.clone(), run.fence, Seq(0));
    append.events = vec!["a".into()];
    store.append(append.clone()).await.unwrap();
    assert!(store.renew(&"gateway".into(), Duration::from_secs(15)).await.unwrap());
    append.first_seq = Seq(1);
    append.change.status = Some(StatusChange::to(RunStatus::Finished));
    store.append(append).await.unwrap();
    locking.await.unwrap();
    for read in reads {
        // Served late, or refused after a second.
        let _ = read.await.unwrap();
    }
    store.feedback(&owner(), &run.thread, None, 9).await.unwrap();
}

/// Compiling takes the server longer than a thousand appends, and everything waits for it when connections are made again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_compiles_no_statement_of_appends() {
    let settings = "fsync=off session_preload_libraries=auto_explain auto_explain.log_min_duration=0 \
                    auto_explain.log_analyze=on auto_explain.log_timing=off";
    let server = tokio::task::spawn_blocking(move || Server::start(settings)).await.unwrap();
    let store = open_at(&server.address, Durability::Os).await;
    let run = start(&*store, "a").await;
    let mut append = Append::new(owner(), run.run, run.fence, run.next_seq);
    append.events = vec!["{}".into()];
    store.append(append).await.unwrap();
    drop(store);
    let log = server.log();
    assert!(log.contains("Update on heads"), "{log}");
    assert!(!log.contains("JIT:"), "{log}");
}
