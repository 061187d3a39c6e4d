//! A gateway, a proxy that cuts connections, and a server with a fixed response.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agentwire_client::{ClientError, Event, HttpAgent, Policy, RunStream};
use agentwire_gateway::{AgentConfig, Gateway, agent::Demo, serve, settings::Settings};
use futures_util::StreamExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Upper limit of every wait, far above the slowest step of a test on a busy machine.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(240);

pub(crate) async fn with_timeout<T>(name: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT_LIMIT, wait).await {
        Ok(done) => done,
        Err(_) => panic!("timeout while waiting for: {name}"),
    }
}

/// A gateway with the demo agent; returns its address.
pub(crate) async fn gateway_with(demo: Demo) -> String {
    let store = agentwire_store::open("memory:", agentwire_store::Options::default()).await.expect("a store");
    let gateway = Gateway::builder(store, Settings::default())
        .agent("demo", AgentConfig::shared(Arc::new(demo)))
        .build();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(gateway, listener, std::future::pending()));
    address.to_string()
}

pub(crate) async fn gateway() -> String {
    gateway_with(Demo::without_pauses()).await
}

/// A proxy that closes each connection after a number of bytes of the response, `usize::MAX` for none.
pub(crate) async fn cutting_proxy(
    to: String,
    mut limit: impl FnMut() -> usize + Send + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let cuts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&cuts);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (to, limit, cuts) = (to.clone(), limit(), Arc::clone(&counted));
            tokio::spawn(async move {
                let Ok(server) = TcpStream::connect(to).await else { return };
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let upload =
                    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                let mut left = limit;
                let mut chunk = [0; 4096];
                while left > 0 {
                    let most = left.min(chunk.len());
                    match from_server.read(&mut chunk[..most]).await {
                        Ok(0) | Err(_) => break,
                        Ok(read) => {
                            left -= read;
                            if to_client.write_all(&chunk[..read]).await.is_err() {
                                break;
                            }
                        }
                    }
                }
                if left == 0 {
                    cuts.fetch_add(1, Ordering::Relaxed);
                }
                upload.abort();
            });
        }
    });
    (address, cuts)
}

/// A server that answers the n-th request with the n-th response, the last one for all further; then it closes the
/// connection, or leaves it open if `stays_open`. The requests are kept.
pub(crate) async fn fixed_server(
    responses: Vec<Vec<u8>>,
    stays_open: bool,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&requests);
    tokio::spawn(async move {
        let mut count = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            let response = responses[count.min(responses.len() - 1)].clone();
            count += 1;
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                let request = read_request(&mut stream).await;
                kept.lock().expect("no panic").push(request);
                let _ = stream.write_all(&response).await;
                if stays_open {
                    let mut rest = [0; 1];
                    let _ = stream.read(&mut rest).await;
                }
            });
        }
    });
    (address, requests)
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()
            });
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return text,
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

/// A response without a length, which ends with the connection.
pub(crate) fn response(status: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut response =
        format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nx-request-id: req-7\r\nconnection: close\r\n\r\n")
            .into_bytes();
    response.extend_from_slice(body);
    response
}

pub(crate) fn sse(body: &str) -> Vec<u8> {
    response("200 OK", "text/event-stream", body.as_bytes())
}

/// The data frames of AG-UI events.
pub(crate) fn frames(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

pub(crate) const STARTED: &str = r#"{"type":"RUN_STARTED","threadId":"t","runId":"r"}"#;
pub(crate) const FINISHED: &str = r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r"}"#;

/// Reconnects at once.
pub(crate) fn quick(retries: u32) -> Policy {
    Policy {
        retries,
        min_delay: Duration::from_millis(1),
        max_delay: Duration::from_millis(2),
        ..Policy::default()
    }
}

pub(crate) fn agent(address: &str) -> HttpAgent {
    HttpAgent::builder(format!("http://{address}/")).reconnect(quick(3)).build().expect("an agent")
}

/// All events of a stream, and its error.
pub(crate) async fn drain(stream: &mut RunStream) -> (Vec<Event>, Option<ClientError>) {
    let mut events = Vec::new();
    with_timeout("the end of a run", async {
        while let Some(item) = stream.next().await {
            match item {
                Ok(event) => events.push(event),
                Err(error) => return (std::mem::take(&mut events), Some(error)),
            }
        }
        (std::mem::take(&mut events), None)
    })
    .await
}
