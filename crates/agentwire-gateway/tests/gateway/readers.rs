//! Readers that leave, that stall, that wait.

use std::{sync::Arc, time::Duration};

use agentwire_gateway::settings::OnDisconnect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::*;

#[tokio::test]
async fn a_run_goes_on_when_its_reader_leaves() {
    for place in Place::each().await {
        let puppet = Puppet::new(|input| talk(input, 10));
        let server = plan(puppet.clone()).on(&place.store).await;
        let mut first = server.run("t", "r", "hello").await;
        puppet.allow(3);
        let seen = first.take(4).await;
        drop(first);
        puppet.allow(100);
        until("the run has ended", async || server.status("r").await == "finished").await;
        let whole = server.follow("/runs/r/stream").await.rest().await;
        valid(&whole);
        assert_eq!(whole[..4], seen);
        assert_eq!((puppet.calls(), puppet.dropped()), (1, 0));
    }
}

#[tokio::test]
async fn a_run_is_cancelled_when_its_last_reader_leaves_if_told_so() {
    let puppet = Puppet::new(|input| talk(input, 10));
    let server =
        plan(puppet.clone()).agent(|agent| agent.on_disconnect = OnDisconnect::Cancel).on_memory().await;
    let mut first = server.run("t", "r", "hello").await;
    let mut second = server.follow("/runs/r/stream").await;
    puppet.allow(3);
    first.take(4).await;
    second.take(4).await;
    drop(first);
    puppet.allow(1);
    second.take(1).await;
    assert_eq!(server.status("r").await, "running", "one reader is left");
    drop(second);
    // The agent is silent, so nothing but the closed connection can have told the gateway.
    until("the run has ended", async || server.status("r").await == "stopped").await;
    assert_eq!(puppet.dropped(), 1);
    let whole = server.follow("/runs/r/stream").await.rest().await;
    valid(&whole);
    assert_eq!(whole.last().expect("an end").json()["outcome"]["type"], "cancelled");
}

/// One reader stalls: it is cut, comes back whole, and fifty others see everything without a break.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_reader_is_cut_and_fifty_others_are_not_harmed() {
    const EVENTS: usize = 160;
    let puppet = Puppet::new(|input| {
        let mut events = vec![start("m")];
        events.extend((0..EVENTS).map(|_| delta("m", &"x".repeat(50 << 10))));
        events.push(end("m"));
        let _ = input;
        events
    });
    let server =
        plan(puppet.clone()).set(|settings| settings.limits.reader_lag = 512 << 10).on_memory().await;
    let mut first = server.run("t", "r", "hello").await;
    first.take(1).await;

    // A reader that takes its head and then nothing more.
    let address = server.base.strip_prefix("http://").expect("it has one");
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let mut stalled = socket.connect(address.parse().expect("an address")).await.expect("a connection");
    stalled
        .write_all(format!("GET /runs/r/stream HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())
        .await
        .expect("sent");
    let mut head = [0; 15];
    stalled.read_exact(&mut head).await.expect("a head");
    assert_eq!(&head, b"HTTP/1.1 200 OK");

    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let mut stream = server.follow("/runs/r/stream").await;
        readers.spawn(async move {
            let mut count = 0;
            while let Some(frame) = stream.next().await {
                assert_eq!(frame.id.as_deref(), Some(format!("r:{count}").as_str()));
                count += 1;
            }
            assert!(!stream.broken);
            count
        });
    }
    let paced = tokio::spawn({
        let puppet = puppet.clone();
        async move {
            // One after the other is taken before the next one comes, so that only who does not read is behind.
            for _ in 0..EVENTS + 2 {
                puppet.allow(1);
                first.take(1).await;
                // A run must last longer than a reader may be busy.
                tokio::time::sleep(Duration::from_millis(40)).await;
            }
            first.rest().await
        }
    });
    let counts = soon("fifty readers", readers.join_all()).await;
    assert!(counts.iter().all(|count| *count == EVENTS + 4), "{counts:?}");
    soon("the first reader", paced).await.expect("no panic");
    let (_, metrics) = server.json("/metrics").await;
    let metrics = metrics.as_str().expect("text");
    let cut = metrics.lines().find(|line| line.starts_with("agentwire_readers_cut")).expect("a figure");
    assert!(cut.ends_with(" 1"), "{cut}");
    // What the system had buffered for it can still be read; then the connection is gone.
    let mut rest = Vec::new();
    let _ = soon("the end of the stalled one", stalled.read_to_end(&mut rest)).await;
    let text = String::from_utf8_lossy(&rest);
    let last = text
        .rmatch_indices("\nid: ")
        .find_map(|(at, _)| text[at + 5..].split_once('\n'))
        .expect("some events")
        .0
        .to_owned();
    assert_ne!(last, format!("r:{}", EVENTS + 3), "it was cut before the end");
    let mut back = server.follow(&format!("/runs/r/stream?after={last}")).await;
    assert_eq!(back.verdict(), "whole");
    let seen: u64 = last[2..].parse().expect("a number");
    assert_eq!(back.rest().await.len() as u64, EVENTS as u64 + 3 - seen);
}

#[tokio::test]
async fn a_quiet_stream_gets_comments() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server =
        plan(puppet.clone()).set(|settings| settings.heartbeat = Duration::from_millis(20)).on_memory().await;
    let mut first = server.run("t", "r", "hello").await;
    let mut seen = first.take(1).await;
    for format in ["ag-ui", "hai", "ai-sdk@5"] {
        let mut stream = server.follow(&format!("/runs/r/stream?format={format}")).await;
        soon("a comment", async {
            while stream.asides.is_empty() {
                let _ = tokio::time::timeout(Duration::from_millis(50), stream.next()).await;
            }
        })
        .await;
        assert!(
            stream.asides.iter().any(|aside| aside.starts_with(": ping")),
            "{format}: {:?}",
            stream.asides
        );
    }
    puppet.allow(100);
    seen.extend(first.rest().await);
    valid(&seen);
}

#[tokio::test]
async fn a_quiet_stream_of_a_queued_run_gets_comments_too() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone())
        .set(|settings| settings.heartbeat = Duration::from_millis(20))
        .agent(|agent| agent.busy = agentwire_gateway::settings::Busy::Enqueue { limit: 2 })
        .on_memory()
        .await;
    let server = Arc::new(server);
    let mut one = server.run("t", "one", "hello").await;
    one.take(1).await;
    let mut two = server.run("t", "two", "hello").await;
    let _ = tokio::time::timeout(Duration::from_millis(150), two.next()).await;
    assert!(!two.asides.is_empty());
    puppet.allow(100);
    valid(&two.rest().await);
}
