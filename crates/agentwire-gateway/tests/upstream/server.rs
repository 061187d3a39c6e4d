//! A server that does exactly what it is told, byte by byte, and remembers what it was asked.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What the server does after it has read a request.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends bytes, as one piece.
    Send(Vec<u8>),
    /// Sends bytes one by one.
    Trickle(Vec<u8>),
    /// Sends bytes again and again until nobody takes them.
    Repeat(Vec<u8>),
    /// Does nothing for ever.
    Hang,
    /// Ends the connection with RST instead of FIN.
    Reset,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Seen {
    /// The method and the target.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1")
    }

    /// A header's value; the name in lower case.
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

type Script = dyn Fn(&Seen) -> Vec<Step> + Send + Sync;

/// The server; it ends when this is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Server {
    /// A server that answers every request the same way.
    pub(crate) async fn always(steps: Vec<Step>) -> Self {
        Self::new(move |_| steps.clone()).await
    }

    /// A server that looks at what it is asked.
    pub(crate) async fn new(script: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (script, notes): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                connections.spawn(serve(stream, Arc::clone(&script), Arc::clone(&notes)));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { url, seen, task }
    }

    /// What was asked so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, script: Arc<Script>, notes: Arc<Mutex<Vec<Seen>>>) {
    let Some(seen) = receive(&mut stream).await else { return };
    let steps = script(&seen);
    notes.lock().unwrap().push(seen);
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

/// One request.
pub(crate) async fn receive(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let seen = Seen { head: head.to_owned(), body: body.to_owned() };
        let length = seen.header("content-length").map_or(0, |value| value.parse().unwrap());
        if seen.body.len() >= length {
            return Some(seen);
        }
    }
}

/// The head of an answer whose end is the end of the connection.
pub(crate) fn head(status: &str, content_type: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n").into_bytes()
}

/// An answer whose end is the end of the connection.
pub(crate) fn answer(status: &str, content_type: &str, body: &[u8]) -> Vec<Step> {
    vec![Step::Send([head(status, content_type), body.to_vec()].concat())]
}

/// A stream of events in good order.
pub(crate) fn events(body: &[u8]) -> Vec<Step> {
    answer("200 OK", "text/event-stream", body)
}
