//! CPU work that would occupy an async worker for more than about a millisecond.
//!
//! It runs on threads of its own, so that probes and streams go on, and only on half of the processors at a time, so
//! that the workers keep the others.

use std::{sync::LazyLock, thread};

use agentwire_core::patch::{Patch, PatchOp};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
    task,
};

use crate::{codes, error::ApiError};

/// The most bytes of JSON text that are parsed and changed on a worker.
pub(crate) const SHORT_TEXT: usize = 64 << 10;

/// The most work of a patch on a worker, as its own budget counts it.
pub(crate) const SHORT_WORK: usize = 256 << 10;

/// The most operations of a patch that is applied on a worker: each can take as long as a walk through the document.
const MAX_SHORT_OPERATIONS: usize = 16;

/// True if a patch may take longer than a worker should be occupied.
pub(crate) fn is_long_patch(patch: &Patch) -> bool {
    let text = |operation: &PatchOp| operation.value.as_ref().map_or(0, |value| value.get().len());
    patch.0.len() > MAX_SHORT_OPERATIONS || patch.0.iter().map(text).sum::<usize>() > SHORT_TEXT
}

/// Shared by all gateways of the process, which share its processors.
static SEATS: LazyLock<Semaphore> = LazyLock::new(|| {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    Semaphore::new((processors / 2).max(1))
});

/// Runs `work` on a thread of the blocking pool. The work goes on if the caller is dropped.
pub(crate) async fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let seat = SEATS.acquire().await;
    let done = task::spawn_blocking(move || {
        let _seat = seat;
        work()
    });
    done.await.map_err(|error| ApiError::new(codes::INTERNAL, error.to_string()))
}

/// Runs `work` on a text of that many bytes: on a thread of the blocking pool if that is long.
pub(crate) async fn by_length<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    if bytes > SHORT_TEXT { spawn(work).await } else { Ok(work()) }
}

/// Runs `work` on this thread, after its other tasks have moved to another one. For tasks of [`tokio::spawn`].
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => task::block_in_place(|| {
            let _seat = runtime.block_on(SEATS.acquire());
            work()
        }),
        // There is no other worker that could take over.
        _ => work(),
    }
}
