//! What goes on on one connection: whether anybody asks for anything, and which stream of several is whose.
//!
//! Hyper bounds the time of a head from its first byte on, and only in HTTP/1. Whoever connects and says nothing, or opens
//! HTTP/2 and no stream, would keep a seat for ever, and enough of them all seats.

use std::{
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::{Version, rt::Executor};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::request::Connection;

/// The traffic of one connection. It also runs the streams of HTTP/2, so that each can be ended without the others: a
/// reader that does not keep up is cut, and whoever shares its connection is not.
///
/// Nobody asks the body of a stream for more while its client takes nothing, so it is no use to end the body. But hyper
/// makes a task of each stream, at once after it has called the service with the request, and a stream whose task
/// is dropped is reset.
#[derive(Clone, Default)]
pub(super) struct Traffic(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    spoken: Spoken,
    /// What ends the stream of which a task is made next.
    next: Option<CancellationToken>,
}

#[derive(Clone, Copy, Default)]
enum Spoken {
    #[default]
    Nothing,
    /// Which sees to its own time-outs from then on.
    Http1,
    Http2 {
        streams: usize,
        /// When the last one ended.
        quiet: Instant,
    },
}

impl Traffic {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a request. Gives what to cut, if it must be: the `whole` connection, or its stream.
    pub(super) fn begin(&self, version: Version, whole: &Connection) -> Connection {
        let mut state = self.state();
        if version != Version::HTTP_2 {
            state.spoken = Spoken::Http1;
            return whole.clone();
        }
        let streams = match state.spoken {
            Spoken::Http2 { streams, .. } => streams + 1,
            Spoken::Nothing | Spoken::Http1 => 1,
        };
        state.spoken = Spoken::Http2 { streams, quiet: Instant::now() };
        let stream = Connection::default();
        state.next = Some(stream.cut.clone());
        stream
    }

    /// Waits until nobody has asked for anything for so long, and nothing is being answered.
    pub(super) async fn lull(&self, patience: Duration) {
        loop {
            tokio::time::sleep(patience).await;
            let spoken = self.state().spoken;
            match spoken {
                Spoken::Nothing => return,
                Spoken::Http1 => return pending().await,
                Spoken::Http2 { streams: 0, quiet } if quiet.elapsed() >= patience => return,
                Spoken::Http2 { .. } => {}
            }
        }
    }
}

/// Counts a stream for as long as it lives.
struct Counted(Traffic);

impl Drop for Counted {
    fn drop(&mut self) {
        if let Spoken::Http2 { streams, quiet } = &mut self.0.state().spoken {
            *streams = streams.saturating_sub(1);
            *quiet = Instant::now();
        }
    }
}

impl<F> Executor<F> for Traffic
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        let next = self.state().next.take();
        let stream = next.map(|cut| (cut, Counted(self.clone())));
        tokio::spawn(async move {
            match stream {
                Some((cut, _counted)) => _ = cut.run_until_cancelled(task).await,
                None => _ = task.await,
            }
        });
    }
}
