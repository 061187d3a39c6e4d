//! Measures the appends of a store: events per second and CPU time per event. Used by `bench/store` and `bench/postgres`.
//!
//! ```text
//! cargo run --release -p agentwire-tools --bin bench_store [FOLDER [FILTER]]
//! ```
//!
//! Every run appends one to four events of 180 bytes per call, as a gateway does that flushes the events of an upstream.
//! *closed*: each run starts the next append as soon as the last is acknowledged, which shows the maximum throughput.
//! *30/s*: each run produces 30 events a second, as a language model does, which shows the cost and latency of a live run.
//! *4 at once*: closed, with four events per append. FILTER selects the rows with this prefix, such as `"sqlite os 1000"`. `POSTGRES` in the
//! environment is the address of a server without other users; its rows are left out without it. *× 3*: three stores, as in
//! three gateways, share the database and the runs.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use agentwire_store::{
    Append, Durability, Log, NewRun, Options, Owner, PostgresOptions, SqliteOptions, Start, Store, open,
};
use bytes::Bytes;

const EVENT_BYTES: usize = 180;
const TIME: Duration = Duration::from_secs(3);
const EVENTS_PER_SECOND: f64 = 30.0;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(folder)?;
    let filter = std::env::args().nth(2).unwrap_or_default();
    println!("| store | runs | pace | events/s | CPU µs/event | p50 ms | p99 ms |");
    println!("|---|---:|---|---:|---:|---:|---:|");
    let server = std::env::var("POSTGRES").ok();
    let mut backends = vec![
        ("memory", Backend::Memory),
        ("sqlite os", Backend::Sqlite(Durability::Os)),
        ("sqlite fsync", Backend::Sqlite(Durability::Fsync)),
    ];
    if let Some(server) = &server {
        backends.extend([
            ("postgres os", Backend::Postgres(server, Durability::Os, 1)),
            ("postgres os × 3", Backend::Postgres(server, Durability::Os, 3)),
            ("postgres memory", Backend::Postgres(server, Durability::Memory, 1)),
            ("postgres memory × 3", Backend::Postgres(server, Durability::Memory, 3)),
        ]);
    }
    for (name, backend) in backends {
        // As many runs for each store.
        let many = if let Backend::Postgres(_, _, stores) = backend { 50 * stores } else { 50 };
        for (runs, pace) in [
            (1, Pace::Closed),
            (50, Pace::Closed),
            (1000, Pace::Closed),
            (many, Pace::FourAtOnce),
            (1, Pace::Timed),
            (50, Pace::Timed),
            (1000, Pace::Timed),
        ] {
            let pace_name = pace.name();
            if !format!("{name} {runs} {pace_name}").starts_with(&filter) {
                continue;
            }
            let path = folder.path().join(format!("{}.db", fs::read_dir(folder.path())?.count()));
            let measured = measure(&path, backend, runs, pace).await?;
            println!("| {name} | {runs} | {pace_name} | {measured}");
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// One to four events per append, the next at once.
    Closed,
    /// Four events per append, the next at once.
    FourAtOnce,
    /// One to four events per append, `EVENTS_PER_SECOND`.
    Timed,
}

impl Pace {
    fn name(self) -> String {
        match self {
            Self::Closed => "closed".into(),
            Self::FourAtOnce => "4 at once".into(),
            Self::Timed => format!("{EVENTS_PER_SECOND}/s"),
        }
    }
}

#[derive(Clone, Copy)]
enum Backend<'a> {
    Memory,
    Sqlite(Durability),
    /// A server, and the number of stores that share it.
    Postgres(&'a str, Durability, usize),
}

async fn open_all(path: &Path, backend: Backend<'_>) -> Result<Vec<Arc<dyn Store>>, Failure> {
    let mut options = Options::default();
    options.memory.bytes = 4 << 30;
    match backend {
        Backend::Memory => Ok(vec![open("memory:", options).await?]),
        Backend::Sqlite(durability) => {
            options.sqlite = SqliteOptions { durability, ..SqliteOptions::default() };
            Ok(vec![open(&format!("sqlite:{}", path.display()), options).await?])
        }
        Backend::Postgres(server, durability, count) => {
            options.postgres = PostgresOptions { durability, ..PostgresOptions::default() };
            let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
            let address = format!("{server}?schema=bench_{nanos}");
            let mut stores = Vec::new();
            for _ in 0..count {
                stores.push(open(&address, options.clone()).await?);
            }
            Ok(stores)
        }
    }
}

async fn measure(path: &Path, backend: Backend<'_>, runs: usize, pace: Pace) -> Result<String, Failure> {
    let stores = open_all(path, backend).await?;
    let owner = Owner::new("tenant", "user", "agent");
    let mut appends = Vec::new();
    for (number, store) in stores.iter().enumerate() {
        store.renew(&format!("bench-{number}").into(), Duration::from_secs(3600)).await?;
    }
    for number in 0..runs {
        let place = number % stores.len();
        let new = NewRun::new(
            format!("thread-{number}"),
            format!("run-{number}"),
            "demo",
            format!("bench-{place}"),
        );
        let Start::Created(run) = stores[place].start(&owner, new).await? else {
            return Err("not created".into());
        };
        appends.push((stores[place].clone(), Append::new(owner.clone(), run.run, run.fence, run.next_seq)));
    }

    let stop = Arc::new(AtomicBool::new(false));
    let (started, cpu_before) = (Instant::now(), cpu_time()?);
    let writers: Vec<_> = appends
        .into_iter()
        .zip(1..)
        .map(|((store, append), seed)| tokio::spawn(write(store, append, seed, pace, stop.clone())))
        .collect();
    tokio::time::sleep(TIME).await;
    stop.store(true, Ordering::Relaxed);
    let mut events = 0;
    let mut waits = Vec::new();
    let mut written = Vec::new();
    for writer in writers {
        let (append, count, waited) = writer.await??;
        events += count;
        waits.extend(waited);
        written.push((append.run, count));
    }
    let (time, cpu) = (started.elapsed(), cpu_time()?.saturating_sub(cpu_before));

    // The figures only count if the events are stored.
    let (run, count) = &written[runs / 2];
    let Log::Exact(log) = stores[0].read(&owner, run, None, usize::MAX).await? else {
        return Err("no log".into());
    };
    assert_eq!(log.events.len(), *count);

    waits.sort_unstable();
    let percentile = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    Ok(format!(
        "{:.0} | {:.2} | {:.3} | {:.2} |",
        events as f64 / time.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / events as f64,
        percentile(0.5),
        percentile(0.99)
    ))
}

async fn write(
    store: Arc<dyn Store>,
    mut append: Append,
    seed: usize,
    pace: Pace,
    stop: Arc<AtomicBool>,
) -> Result<(Append, usize, Vec<Duration>), Failure> {
    let event = Bytes::from(vec![b'x'; EVENT_BYTES]);
    let mut waits = Vec::new();
    let (mut count, mut turn) = (0, seed);
    if pace == Pace::Timed {
        // Staggered starts: models are not synchronised.
        let part = (seed * 7919 % 1000) as f64 / 1000.0;
        tokio::time::sleep(Duration::from_secs_f64(part / EVENTS_PER_SECOND)).await;
    }
    while !stop.load(Ordering::Relaxed) {
        turn = turn * 31 % 1009;
        let events = if pace == Pace::FourAtOnce { 4 } else { 1 + turn % 4 };
        let started = Instant::now();
        let next = Append { events: vec![event.clone(); events], ..append.clone() };
        append.first_seq = store.append(next).await?.next_seq;
        waits.push(started.elapsed());
        count += events;
        match pace {
            Pace::Timed => {
                let due = started + Duration::from_secs_f64(events as f64 / EVENTS_PER_SECOND);
                tokio::time::sleep_until(due.into()).await;
            }
            // The memory store never suspends a task; let other tasks run.
            Pace::Closed | Pace::FourAtOnce => tokio::task::yield_now().await,
        }
    }
    Ok((append, count, waits))
}

/// The CPU time of all threads of this process.
fn cpu_time() -> Result<Duration, Failure> {
    let mut nanos = 0;
    for thread in fs::read_dir("/proc/self/task")? {
        let times = fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += times.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}
