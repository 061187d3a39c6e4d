//! CPU work that would occupy an async worker for more than about a millisecond.
//!
//! It is done off the workers, so that probes and streams go on, and only on half of the processors at a time, so that the
//! workers keep the others. Those who wait for a processor wait without a thread, so that the blocking pool stays free
//! for the store and for names, and in the order of [`queue`].

mod queue;
mod thread_time;
mod watched;

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::LazyLock,
    task::Poll,
    thread,
};

use agentwire_core::patch::{Op, Patch, PatchOp};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task,
};

use self::queue::{Caller, Full, Queue};
pub(crate) use self::{
    queue::Seat,
    watched::{Expected, watched},
};
use crate::{codes, error::ApiError, limits::Party};

/// The most bytes of JSON text that are parsed and changed on a worker.
pub(crate) const SHORT_TEXT: usize = 64 << 10;

/// The most work of a patch on a worker, as its own budget counts it.
pub(crate) const SHORT_WORK: usize = 256 << 10;

/// Shared by all gateways of the process, which share its processors.
static QUEUE: LazyLock<Queue> = LazyLock::new(|| {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    Queue::new((processors / 2).max(1))
});

/// True if a patch may take longer than a worker should be occupied, for a document of at most that many bytes.
pub(crate) fn is_long_patch(patch: &Patch, document: usize) -> bool {
    let text = |operation: &PatchOp| operation.value.as_ref().map_or(0, |value| value.get().len());
    let added: usize = patch.0.iter().map(text).sum();
    let copies = patch.0.iter().filter(|operation| operation.op == Op::Copy).count();
    // An operation moves or compares the document at most once; each copy can double it.
    let largest = document.saturating_add(added).saturating_mul(1 << copies.min(40));
    added > SHORT_TEXT || patch.0.len().saturating_mul(largest) > SHORT_WORK
}

/// Waits for a processor.
pub(crate) async fn seat(party: impl Into<Party>) -> Seat {
    let party = party.into();
    loop {
        if let Ok(seat) = QUEUE.seat(party.clone(), Caller::Patient).await {
            return seat;
        }
    }
}

/// Waits for a processor for a request: `OVERLOADED` if too many requests wait.
async fn request_seat(party: impl Into<Party>) -> Result<Seat, ApiError> {
    QUEUE.seat(party.into(), Caller::Request).await.map_err(|Full| {
        let message = "too many requests wait for a processor";
        ApiError::new(codes::OVERLOADED, message).retry_after(1)
    })
}

/// Runs `work` of a request on a thread of the blocking pool. The work goes on if the caller is dropped.
pub(crate) async fn spawn<T: Send + 'static>(
    party: impl Into<Party>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let seat = request_seat(party).await?;
    spawn_with(seat, work).await
}

/// The same for work that is not refused.
pub(crate) async fn spawn_patient<T: Send + 'static>(
    party: impl Into<Party>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let seat = seat(party).await;
    spawn_with(seat, work).await
}

async fn spawn_with<T: Send + 'static>(
    seat: Seat,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let done = task::spawn_blocking(move || {
        let _seat = seat;
        work()
    });
    done.await.map_err(|error| ApiError::new(codes::INTERNAL, error.to_string()))
}

/// Runs `work` of a request on a text of that many bytes: off the workers if that is long.
pub(crate) async fn by_length<T: Send + 'static>(
    party: impl Into<Party>,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    if bytes > SHORT_TEXT { spawn(party, work).await } else { Ok(work()) }
}

/// Runs `work` on this thread, after its other tasks have moved to another one. For tasks of [`tokio::spawn`].
pub(crate) async fn in_place<T>(party: impl Into<Party>, work: impl FnOnce() -> T) -> T {
    let _seat = seat(party).await;
    off_worker(work)
}

/// The same for work on a text of that many bytes; on the worker if that is short.
pub(crate) async fn in_place_by_length<T>(
    party: impl Into<Party>,
    bytes: usize,
    work: impl FnOnce() -> T,
) -> T {
    if bytes > SHORT_TEXT { in_place(party, work).await } else { work() }
}

/// Awaits a future whose first poll is long, and others soon after it may be: an agent that writes a long request.
pub(crate) async fn long_start<F: Future>(party: impl Into<Party>, future: F) -> F::Output {
    let mut future = watched(Expected::LongStart, future);
    let seat = seat(party).await;
    let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx))).await;
    drop(seat);
    match first {
        Poll::Ready(output) => output,
        Poll::Pending => future.await,
    }
}

/// [`in_place`] for a request: `OVERLOADED` if too many requests wait.
pub(crate) async fn request_in_place<T>(
    party: impl Into<Party>,
    work: impl FnOnce() -> T,
) -> Result<T, ApiError> {
    let _seat = request_seat(party).await?;
    Ok(off_worker(work))
}

/// Runs `work` on this thread, after its other tasks have moved to another one. The caller has a [`Seat`].
pub(crate) fn off_worker<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => task::block_in_place(work),
        // There is no other worker that could take over.
        _ => work(),
    }
}
