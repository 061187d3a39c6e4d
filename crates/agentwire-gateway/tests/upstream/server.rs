//! A scripted HTTP server: sends the given bytes and records the requests it received.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// One action of the server after it has read a request.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends bytes in one write.
    Send(Vec<u8>),
    /// Sends bytes one by one.
    Trickle(Vec<u8>),
    /// Sends bytes repeatedly until the connection is closed.
    Repeat(Vec<u8>),
    /// Keeps the connection open and sends nothing more.
    Hang,
    /// Ends the connection with RST instead of FIN.
    Reset,
}

/// A request as received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl ReceivedRequest {
    /// The method and the target.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1")
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("the body is JSON")
    }
}

type Script = dyn Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync;

/// The server; it stops when this is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: JoinHandle<()>,
}

impl Server {
    /// A server with the same response to every request.
    pub(crate) async fn always(steps: Vec<Step>) -> Self {
        Self::new(move |_| steps.clone()).await
    }

    /// A server whose response depends on the request.
    pub(crate) async fn new(script: impl Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (script, log): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&requests));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                connections.spawn(serve(stream, Arc::clone(&script), Arc::clone(&log)));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { url, requests, task }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, script: Arc<Script>, log: Arc<Mutex<Vec<ReceivedRequest>>>) {
    let Some(request) = receive(&mut stream).await else { return };
    let steps = script(&request);
    log.lock().unwrap().push(request);
    stream.set_nodelay(true).unwrap();
    for step in steps {
        match step {
            Step::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Step::Trickle(bytes) => {
                for byte in bytes {
                    if stream.write_all(&[byte]).await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            }
            Step::Repeat(bytes) => while stream.write_all(&bytes).await.is_ok() {},
            Step::Hang => std::future::pending().await,
            Step::Reset => {
                stream.set_zero_linger().unwrap();
                return;
            }
        }
    }
    stream.shutdown().await.ok();
}

/// Reads one request; `None` if the connection ends first.
pub(crate) async fn receive(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let request = ReceivedRequest { head: head.to_owned(), body: body.to_owned() };
        let length = request.header("content-length").map_or(0, |value| value.parse().unwrap());
        if request.body.len() >= length {
            return Some(request);
        }
    }
}

/// The head of a response whose body ends with the connection.
pub(crate) fn head(status: &str, content_type: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n").into_bytes()
}

/// A response whose body ends with the connection.
pub(crate) fn response(status: &str, content_type: &str, body: &[u8]) -> Vec<Step> {
    vec![Step::Send([head(status, content_type), body.to_vec()].concat())]
}

/// A response with an SSE stream.
pub(crate) fn events(body: &[u8]) -> Vec<Step> {
    response("200 OK", "text/event-stream", body)
}
