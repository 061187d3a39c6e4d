//! The other processes of a gateway benchmark: a streaming agent, a proxy that only copies bytes, and the load. Used
//! by `bench/gateway`.
//!
//! ```text
//! bench_gateway agent                      an AG-UI server; prints its port
//! bench_gateway floor PORT                 copies bytes to and from PORT; prints its own port
//! bench_gateway load PORT RUNS RATE SECS [PATH]   RUNS runs at RATE events a second each; RATE 0: SECS × 1,000 events each,
//!                                          as fast as possible
//! bench_gateway idle PORT READERS PID      READERS readers of runs without new events; prints the memory of PID
//! bench_gateway storm PORT READERS         READERS readers that reconnect at once
//! bench_gateway backlog PORT READERS PID   READERS readers that have read a long log and wait; prints the memory of PID
//!                                          per reader, and what is left of it when they have gone
//! ```

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::Instant,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let port = u16::try_from(number(1))?;
    match arguments.first().map(String::as_str) {
        Some("agent") => agent().await,
        Some("floor") => floor(port).await,
        Some("load") => {
            let path = arguments.get(5).map_or("/", String::as_str).to_owned();
            load(port, number(2), number(3), number(4), path).await
        }
        Some("idle") => idle(port, number(2), number(3)).await,
        Some("storm") => storm(port, number(2)).await,
        Some("backlog") => backlog(port, number(2), number(3)).await,
        _ => Err("usage: bench_gateway agent | floor PORT | load PORT RUNS RATE SECS [PATH] | idle PORT READERS PID | storm PORT READERS | backlog PORT READERS PID".into()),
    }
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

async fn listen() -> Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    io::stdout().flush()?;
    Ok(listener)
}

/// Reads a request and returns its body. The last message in it is the command for [`agent`].
async fn read_request(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    Ok(String::from_utf8(body)?)
}

/// An agent: `play RATE SECS` streams text, with a third number the run then stays open; any other message starts a run that
/// stays open without text.
async fn agent() -> Result<()> {
    let listener = listen().await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let mut stream = BufReader::new(stream);
            let Ok(body) = read_request(&mut stream).await else { return };
            let words: Vec<u64> = body
                .split("play ")
                .nth(1)
                .map(|rest| rest.split(['"', ' ']).filter_map(|word| word.parse().ok()).take(3).collect())
                .unwrap_or_default();
            let (rate, seconds) = (words.first().copied(), words.get(1).copied().unwrap_or(0));
            let _ = play(stream.into_inner(), rate, seconds, words.len() > 2).await;
        });
    }
}

async fn play(mut stream: TcpStream, rate: Option<u64>, seconds: u64, stays_open: bool) -> Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut send = async |text: &str| -> Result<()> {
        let frame = format!("{:x}\r\ndata: {text}\n\n\r\n", text.len() + 8);
        Ok(stream.write_all(frame.as_bytes()).await?)
    };
    send(r#"{"type":"RUN_STARTED","threadId":"t","runId":"r"}"#).await?;
    send(r#"{"type":"TEXT_MESSAGE_START","messageId":"message-1","role":"assistant"}"#).await?;
    let Some(rate) = rate else {
        std::future::pending::<()>().await;
        return Ok(());
    };
    if rate == 0 {
        for _ in 0..seconds * 1000 {
            let event = format!(
                r#"{{"type":"TEXT_MESSAGE_CONTENT","messageId":"message-1","delta":"@{} some words of an answer "}}"#,
                micros()
            );
            send(&event).await?;
        }
    }
    let pause = Duration::from_micros(1_000_000 / rate.max(1));
    // Staggered, so that the runs do not all emit at the same moment.
    let jitter = micros() % u64::try_from(pause.as_micros())?.max(1);
    let mut tick = tokio::time::interval_at(Instant::now() + Duration::from_micros(jitter), pause);
    for _ in 0..rate * seconds {
        tick.tick().await;
        let event = format!(
            r#"{{"type":"TEXT_MESSAGE_CONTENT","messageId":"message-1","delta":"@{} some words of an answer "}}"#,
            micros()
        );
        send(&event).await?;
    }
    if stays_open {
        send(r#"{"type":"STEP_STARTED","stepName":"waiting"}"#).await?;
        std::future::pending::<()>().await;
    }
    send(r#"{"type":"TEXT_MESSAGE_END","messageId":"message-1"}"#).await?;
    send(r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r"}"#).await?;
    stream.write_all(b"0\r\n\r\n").await?;
    Ok(())
}

/// A proxy that only copies bytes, twice each: the lower bound of the cost of any proxy.
async fn floor(port: u16) -> Result<()> {
    let listener = listen().await?;
    loop {
        let (mut down, _) = listener.accept().await?;
        tokio::spawn(async move {
            let _ = down.set_nodelay(true);
            let Ok(mut up) = TcpStream::connect(("127.0.0.1", port)).await else { return };
            let _ = up.set_nodelay(true);
            let _ = tokio::io::copy_bidirectional(&mut down, &mut up).await;
        });
    }
}

async fn request(port: u16, text: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    stream.write_all(text.as_bytes()).await?;
    Ok(stream)
}

fn post(path: &str, run: &str, message: &str) -> String {
    let body = format!(
        r#"{{"threadId":"thread-{run}","runId":"{run}","messages":[{{"id":"u-{run}","role":"user","content":"{message}"}}],"tools":[],"context":[],"state":{{}},"forwardedProps":{{}}}}"#
    );
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[derive(Default)]
struct Counts {
    events: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
}

async fn load(port: u16, runs: u64, rate: u64, seconds: u64, path: String) -> Result<()> {
    let counts = Arc::new(Counts::default());
    let started = Instant::now();
    let salt = micros();
    let mut tasks = Vec::new();
    for run in 0..runs {
        let (counts, path) = (counts.clone(), path.clone());
        tasks.push(tokio::spawn(async move {
            // The starts are spread over two seconds.
            tokio::time::sleep(Duration::from_micros(2_000_000 * run / runs.max(1))).await;
            let text = post(&path, &format!("{salt}-{run}"), &format!("play {rate} {seconds}"));
            let mut latencies = Vec::new();
            if read_run(port, &text, &counts, &mut latencies).await.is_err() {
                counts.failed.fetch_add(1, Ordering::Relaxed);
            }
            latencies
        }));
    }
    let mut latencies: Vec<u64> = Vec::new();
    for task in tasks {
        latencies.extend(task.await?);
    }
    latencies.sort_unstable();
    let at = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).copied().unwrap_or(0);
    println!(
        "{{\"events\":{},\"ended\":{},\"failed\":{},\"seconds\":{:.1},\"p50_us\":{},\"p99_us\":{}}}",
        counts.events.load(Ordering::Relaxed),
        counts.ended.load(Ordering::Relaxed),
        counts.failed.load(Ordering::Relaxed),
        started.elapsed().as_secs_f64(),
        at(0.5),
        at(0.99)
    );
    Ok(())
}

/// Reads a run to its end, counts its events and collects their latencies in microseconds.
async fn read_run(port: u16, text: &str, counts: &Counts, latencies: &mut Vec<u64>) -> Result<()> {
    let mut stream = request(port, text).await?;
    let mut buffer = vec![0; 16 << 10];
    let mut kept = 0;
    let mut ended = false;
    loop {
        let count = stream.read(&mut buffer[kept..]).await?;
        if count == 0 {
            break;
        }
        let now = micros();
        let end = kept + count;
        // Whole lines only; a line never fills the buffer.
        let lines = buffer[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for line in buffer[..lines].split(|byte| *byte == b'\n') {
            if !line.starts_with(b"data: {") {
                continue;
            }
            counts.events.fetch_add(1, Ordering::Relaxed);
            ended |= line.starts_with(b"data: {\"type\":\"RUN_FINISHED\"");
            if let Some(at) = line.iter().position(|byte| *byte == b'@') {
                let digits = line[at + 1..].iter().take_while(|byte| byte.is_ascii_digit());
                let sent = digits.fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
                latencies.push(now.saturating_sub(sent));
            }
        }
        buffer.copy_within(lines..end, 0);
        kept = end - lines;
    }
    if ended {
        counts.ended.fetch_add(1, Ordering::Relaxed);
        Ok(())
    } else {
        Err("the stream ended before its run".into())
    }
}

fn follow(run: &str, after: &str) -> String {
    format!("GET /runs/{run}/stream{after} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
}

/// Opens a stream and reads it until it contains `until`.
async fn attach(port: u16, text: &str, until: &[u8]) -> Result<TcpStream> {
    let mut stream = request(port, text).await?;
    let mut received = Vec::new();
    let mut buffer = [0; 2048];
    // A match can begin in the bytes before; to search all of them again would take longer than the gateway.
    while !received.windows(until.len()).any(|window| window == until) {
        received.drain(..received.len().saturating_sub(buffer.len()));
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Err(String::from_utf8_lossy(&received).into());
        }
        received.extend_from_slice(&buffer[..count]);
    }
    Ok(stream)
}

const IDLE_RUNS: u64 = 50;

async fn start_idle(port: u16) -> Result<(u64, Vec<TcpStream>)> {
    let salt = micros();
    let mut first = Vec::new();
    for run in 0..IDLE_RUNS {
        first.push(attach(port, &post("/", &format!("{salt}-{run}"), "idle"), b"TEXT_MESSAGE_START").await?);
    }
    Ok((salt, first))
}

async fn attach_many(port: u16, salt: u64, readers: u64, after: bool) -> Result<Vec<TcpStream>> {
    let mut open = Vec::new();
    for some in (0..readers).collect::<Vec<_>>().chunks(500) {
        let tasks: Vec<_> = some
            .iter()
            .map(|reader| {
                let run = format!("{salt}-{}", reader % IDLE_RUNS);
                let after = if after { format!("?after={run}:0") } else { String::new() };
                let text = follow(&run, &after);
                tokio::spawn(async move { attach(port, &text, b"TEXT_MESSAGE_START").await })
            })
            .collect();
        for task in tasks {
            open.push(task.await??);
        }
    }
    Ok(open)
}

fn resident(pid: u64) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no figure")?.parse()?)
}

async fn idle(port: u16, readers: u64, pid: u64) -> Result<()> {
    let (salt, _first) = start_idle(port).await?;
    let before = resident(pid)?;
    let _open = attach_many(port, salt, readers, false).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = resident(pid)?;
    println!("{{\"readers\":{readers},\"kib_per_reader\":{:.1}}}", (after - before) as f64 / readers as f64);
    Ok(())
}

/// Thousands of events in the log of each run that readers come back to.
const BACKLOG: u64 = 5;

async fn backlog(port: u16, readers: u64, pid: u64) -> Result<()> {
    let salt = micros();
    let mut first = Vec::new();
    for run in 0..IDLE_RUNS {
        let text = post("/", &format!("{salt}-{run}"), &format!("play 0 {BACKLOG} 1"));
        first.push(attach(port, &text, b"STEP_STARTED").await?);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = resident(pid)?;
    let mut open = Vec::new();
    for some in (0..readers).collect::<Vec<_>>().chunks(100) {
        let tasks: Vec<_> = some
            .iter()
            .map(|reader| {
                let text = follow(&format!("{salt}-{}", reader % IDLE_RUNS), "");
                tokio::spawn(async move { attach(port, &text, b"STEP_STARTED").await })
            })
            .collect();
        for task in tasks {
            open.push(task.await??);
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let during = resident(pid)?;
    drop(open);
    // The gateway notices, and gives memory back now and then.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let after = resident(pid)?;
    let per_reader = |kib: u64| kib.saturating_sub(before) as f64 / readers as f64;
    println!(
        "{{\"readers\":{readers},\"kib_per_reader\":{:.1},\"kib_per_reader_left\":{:.1}}}",
        per_reader(during),
        per_reader(after)
    );
    Ok(())
}

async fn storm(port: u16, readers: u64) -> Result<()> {
    let (salt, _first) = start_idle(port).await?;
    let open = attach_many(port, salt, readers, false).await?;
    drop(open);
    let started = Instant::now();
    let _open = attach_many(port, salt, readers, true).await?;
    println!("{{\"readers\":{readers},\"seconds\":{:.2}}}", started.elapsed().as_secs_f64());
    Ok(())
}
