//! Calls to Python: a request goes out as a note, a stream of bytes comes back through a pipe that is bounded in bytes.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use agentwire_gateway::{
    UpstreamError, UpstreamErrorKind,
    agent::{Request, RequestContext},
};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::notes::{Note, Notes};

/// Bytes that may wait in a pipe.
pub(crate) const PIPE: usize = 64 << 10;

/// Pieces in a row that are taken at once. A stream that goes on in this way is read with pauses, because a wake-up costs much more
/// than an event. Tokens of a model come more slowly.
const ROW: u32 = 8;

/// The pause between two pieces of such a stream, and the time between two pieces of a row.
const PAUSE: Duration = Duration::from_millis(1);

/// The failure of a call, as Python tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallError {
    /// The code of a failure that may be told; none for any other exception.
    pub(crate) code: Option<String>,
    pub(crate) message: String,
    /// For the log.
    pub(crate) detail: String,
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<u64>,
}

impl CallError {
    /// The same as the failure of an agent.
    pub(crate) fn of_agent(self) -> UpstreamError {
        let error = match self.code {
            Some(code) => UpstreamError::new(code, self.message).with_retry_after(self.retry_after),
            None => {
                UpstreamErrorKind::Failed("the agent failed; the log of the gateway has more".into()).into()
            }
        };
        if self.detail.is_empty() { error } else { error.with_detail(self.detail) }
    }
}

/// The result of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    More = 0,
    /// Wait for the note `Room`.
    Full = 1,
    /// Nobody listens.
    Closed = 2,
}

#[derive(Debug, Default)]
struct Pipe {
    buffer: BytesMut,
    end: Option<Result<(), CallError>>,
    waker: Option<Waker>,
    /// True if Python waits for room.
    is_full: bool,
    /// True if the reader looks again by itself, unless the pipe is full or ends.
    is_paused: bool,
}

/// The calls that are under way.
#[derive(Debug)]
pub(crate) struct Calls {
    notes: Arc<Notes>,
    pipes: Mutex<HashMap<u64, Arc<Mutex<Pipe>>>>,
    next: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Calls {
    pub(crate) fn new(notes: Arc<Notes>) -> Arc<Self> {
        Arc::new(Self { notes, pipes: Mutex::default(), next: AtomicU64::new(1) })
    }

    pub(crate) fn notes(&self) -> &Arc<Notes> {
        &self.notes
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens the pipe of an exchange or a call.
    pub(crate) fn open(self: &Arc<Self>, id: u64) -> CallStream {
        let pipe = Arc::new(Mutex::new(Pipe::default()));
        locked(&self.pipes).insert(id, pipe.clone());
        CallStream { id, pipe, calls: self.clone(), row: 0, taken: Instant::now(), pause: None }
    }

    /// Asks Python.
    pub(crate) fn call(
        self: &Arc<Self>,
        target: &str,
        kind: &'static str,
        payload: String,
        context: Option<&RequestContext>,
    ) -> CallStream {
        let stream = self.open(self.next_id());
        let context = context.and_then(context_id);
        self.notes.push(Note::Call { id: stream.id, target: target.into(), kind, payload, context });
        stream
    }

    /// Asks Python for one value.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        target: &str,
        kind: &'static str,
        payload: String,
        context: Option<&RequestContext>,
    ) -> Result<Bytes, CallError> {
        let mut stream = self.call(target, kind, payload, context);
        let mut answer = BytesMut::new();
        while let Some(piece) = stream.next().await {
            answer.extend_from_slice(&piece?);
        }
        Ok(answer.freeze())
    }

    /// Appends to a pipe: `write` adds bytes to its buffer.
    pub(crate) fn put<E>(
        &self,
        id: u64,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Put, E> {
        let Some(pipe) = locked(&self.pipes).get(&id).cloned() else { return Ok(Put::Closed) };
        // Outside of the lock: code of objects may run.
        let mut bytes = Vec::with_capacity(1024);
        write(&mut bytes)?;
        let (waker, put) = {
            let mut pipe = locked(&pipe);
            if pipe.end.is_some() {
                return Ok(Put::Closed);
            }
            pipe.buffer.extend_from_slice(&bytes);
            pipe.is_full = pipe.buffer.len() >= PIPE;
            let waker = if pipe.is_paused && !pipe.is_full { None } else { pipe.waker.take() };
            (waker, if pipe.is_full { Put::Full } else { Put::More })
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(put)
    }

    /// Ends a pipe.
    pub(crate) fn end(&self, id: u64, end: Result<(), CallError>) {
        let Some(pipe) = locked(&self.pipes).get(&id).cloned() else { return };
        let waker = {
            let mut pipe = locked(&pipe);
            pipe.end.get_or_insert(end);
            pipe.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The bytes that Python puts into a pipe.
#[derive(Debug)]
pub(crate) struct CallStream {
    pub(crate) id: u64,
    pipe: Arc<Mutex<Pipe>>,
    calls: Arc<Calls>,
    /// The pieces that followed each other without a pause.
    row: u32,
    /// The moment of the last piece.
    taken: Instant,
    pause: Option<Pin<Box<Sleep>>>,
}

impl CallStream {
    /// Waits during a pause of a stream that is read with pauses.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.pause.is_none() && self.row >= ROW && self.taken.elapsed() < PAUSE {
            self.pause = Some(Box::pin(sleep_until(self.taken + PAUSE)));
        }
        let Some(pause) = &mut self.pause else { return Poll::Ready(()) };
        let is_over = pause.as_mut().poll(cx).is_ready();
        let mut pipe = locked(&self.pipe);
        pipe.is_paused = !is_over && !pipe.is_full && pipe.end.is_none();
        if pipe.is_paused {
            pipe.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(pipe);
        self.pause = None;
        Poll::Ready(())
    }

    /// Counts a piece of a row.
    fn note_piece(&mut self) {
        let now = Instant::now();
        // After a pause there is a little more time, because timers are late.
        self.row = if now - self.taken < 4 * PAUSE { self.row.saturating_add(1) } else { 0 };
        self.taken = now;
    }
}

impl Stream for CallStream {
    type Item = Result<Bytes, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.poll_pause(cx).is_pending() {
            return Poll::Pending;
        }
        let mut pipe = locked(&self.pipe);
        if !pipe.buffer.is_empty() {
            let bytes = pipe.buffer.split().freeze();
            if std::mem::take(&mut pipe.is_full) {
                self.calls.notes.push(Note::Room(self.id));
            }
            drop(pipe);
            self.note_piece();
            return Poll::Ready(Some(Ok(bytes)));
        }
        match &mut pipe.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(end) => Poll::Ready(Some(Err(std::mem::replace(end, Ok(())).err().unwrap_or_default()))),
            None => {
                pipe.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for CallStream {
    fn drop(&mut self) {
        locked(&self.calls.pipes).remove(&self.id);
        let mut pipe = locked(&self.pipe);
        if pipe.end.is_none() {
            pipe.end = Some(Ok(()));
            self.calls.notes.push(Note::Cancel(self.id));
        } else if pipe.is_full {
            // A task that waits for room must not wait for ever.
            self.calls.notes.push(Note::Room(self.id));
        }
    }
}

/// The data of a request, which stays in Python until it is dropped here.
#[derive(Debug)]
pub(crate) struct ContextHandle {
    id: u64,
    /// True for a request of the gateway's own server: Python has not seen its body.
    is_served: bool,
    notes: Arc<Notes>,
}

impl ContextHandle {
    /// The handle of one request, as the gateway stores it.
    pub(crate) fn context(id: u64, is_served: bool, notes: Arc<Notes>) -> RequestContext {
        RequestContext(Arc::new(Self { id, is_served, notes }))
    }
}

impl Drop for ContextHandle {
    fn drop(&mut self) {
        self.notes.push(Note::Release(self.id));
    }
}

/// True if Python has not seen the body of the request.
pub(crate) fn is_served(context: &RequestContext) -> bool {
    context.0.downcast_ref::<ContextHandle>().is_some_and(|handle| handle.is_served)
}

fn context_id(context: &RequestContext) -> Option<u64> {
    context.0.downcast_ref::<ContextHandle>().map(|handle| handle.id)
}

/// The run or thread that a call is about.
pub(crate) fn about(request: &Request) -> Value {
    json!({
        "thread": request.input.thread.as_str(),
        "run": request.input.run.as_str(),
        "tenant": request.owner.tenant.as_str(),
        "user": request.owner.user.as_str(),
        "scope": request.upstream_scope.as_deref(),
        "one_user": !request.has_users,
        "headers": &*request.headers,
    })
}
