//! The activity of one connection: closes idle connections and single HTTP/2 streams.
//!
//! Hyper limits the time of a request head from its first byte on, and only in HTTP/1. A client that connects and sends
//! nothing, or opens HTTP/2 and no stream, would occupy a connection slot for ever, and enough of them all slots.

use std::{
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::{Version, rt::Executor};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    outgoing::{Outgoing, timed_stream},
    request::Connection,
};

/// The activity of one connection. It is also hyper's executor for HTTP/2 streams, so that each can be closed without the
/// others: a reader that does not keep up is cut, and other readers on the same connection are not.
///
/// Ending the body would not help: it is not polled while the client does not read. But hyper spawns a task for each stream
/// right after it has called the service with the request, and a stream whose task is dropped is reset.
#[derive(Clone)]
pub(super) struct ConnectionActivity {
    state: Arc<Mutex<State>>,
    /// Time for the client to take a piece of a response.
    write_timeout: Duration,
}

#[derive(Default)]
struct State {
    protocol: Protocol,
    /// The stream whose task is spawned next.
    next: Option<NextStream>,
}

/// An HTTP/2 stream that gets its task: the means to close it, and its data.
struct NextStream {
    cut: CancellationToken,
    outgoing: Arc<Outgoing>,
}

#[derive(Clone, Copy, Default)]
enum Protocol {
    /// No request yet.
    #[default]
    Unknown,
    /// Hyper applies its own timeouts from the first request on.
    Http1,
    Http2 {
        streams: usize,
        /// When the last stream ended.
        idle_since: Instant,
    },
}

impl ConnectionActivity {
    pub(super) fn new(write_timeout: Duration) -> Self {
        Self { state: Arc::default(), write_timeout }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request. Returns what to close if its reader does not keep up: the `whole` connection, or its stream.
    /// `outgoing` is the data of its response.
    pub(super) fn add_request(
        &self,
        version: Version,
        whole: &Connection,
        outgoing: &Arc<Outgoing>,
    ) -> Connection {
        let mut state = self.state();
        if version != Version::HTTP_2 {
            state.protocol = Protocol::Http1;
            return whole.clone();
        }
        let streams = match state.protocol {
            Protocol::Http2 { streams, .. } => streams + 1,
            Protocol::Unknown | Protocol::Http1 => 1,
        };
        state.protocol = Protocol::Http2 { streams, idle_since: Instant::now() };
        let stream = Connection { cut: CancellationToken::new(), ..whole.clone() };
        state.next = Some(NextStream { cut: stream.cut.clone(), outgoing: outgoing.clone() });
        stream
    }

    /// Waits until there was no request for `timeout` and no response is active.
    pub(super) async fn idle(&self, timeout: Duration) {
        loop {
            tokio::time::sleep(timeout).await;
            let protocol = self.state().protocol;
            match protocol {
                Protocol::Unknown => return,
                Protocol::Http1 => return pending().await,
                Protocol::Http2 { streams: 0, idle_since } if idle_since.elapsed() >= timeout => return,
                Protocol::Http2 { .. } => {}
            }
        }
    }
}

/// Counts a stream until it is dropped.
struct CountedStream(ConnectionActivity);

impl Drop for CountedStream {
    fn drop(&mut self) {
        if let Protocol::Http2 { streams, idle_since } = &mut self.0.state().protocol {
            *streams = streams.saturating_sub(1);
            *idle_since = Instant::now();
        }
    }
}

impl<F> Executor<F> for ConnectionActivity
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        let next = self.state().next.take();
        let stream = next.map(|next| (next, CountedStream(self.clone())));
        let timeout = self.write_timeout;
        tokio::spawn(async move {
            match stream {
                Some((NextStream { cut, outgoing }, _counted)) => {
                    let timed = timed_stream(task, outgoing, timeout, cut.clone());
                    cut.run_until_cancelled(timed).await;
                }
                None => _ = task.await,
            }
        });
    }
}
