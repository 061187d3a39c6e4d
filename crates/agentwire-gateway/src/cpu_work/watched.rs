//! Tasks that may occupy a worker for long where nobody expects it.
//!
//! Long work is sent to [`super::spawn`] or [`super::in_place`] where its length is known. The rest is found by the processor
//! time that a poll takes: after one long poll, the next ones are done while another thread has the worker's other tasks.
//! So a request or a run can hold up others once, for one poll, and not again and again.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    thread,
    time::{Duration, Instant},
};

use super::{off_worker, thread_time};

/// A poll that takes more processor time occupied the worker for too long. Time on the clock would also count the waits of
/// a busy machine, where the polls off the worker make it busier.
const LONG_POLL: Duration = Duration::from_millis(3);

/// The polls off the worker after a long one. Each costs some microseconds more.
const POLLS: u32 = 64;

/// The most polls off the workers at a time. Each occupies a thread, whose stack and allocator keep memory. The polls beyond
/// that are done on the workers: they would wait for a processor on a thread of their own too.
static MAX_THREADS: LazyLock<usize> = LazyLock::new(|| {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (4 * processors).max(16)
});

/// The polls off the workers now.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// A poll that is counted until it ends, also by a panic.
struct Counted;

impl Counted {
    /// `None` if there are as many as allowed.
    fn begin() -> Option<Self> {
        let counted = Self;
        // The drop of `counted` takes it back.
        (THREADS.fetch_add(1, Ordering::Relaxed) < *MAX_THREADS).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Which polls of a future are off the worker from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// None.
    Short,
    /// The first ones: a run of a long request, whose events are short.
    LongStart,
    /// All of them: a request with a long body.
    Long,
}

impl Expected {
    /// `self` for a text of more bytes than a worker should read, else [`Expected::Short`].
    pub(crate) fn for_length(self, bytes: usize) -> Self {
        if bytes > super::SHORT_TEXT { self } else { Self::Short }
    }
}

/// A future whose long polls are off the workers. Create it by [`watched`].
pub(crate) struct Watched<F> {
    future: Pin<Box<F>>,
    /// The next polls that are off the worker.
    left: u32,
}

/// Watches a future.
pub(crate) fn watched<F: Future>(expected: Expected, future: F) -> Watched<F> {
    let left = match expected {
        Expected::Short => 0,
        Expected::LongStart => POLLS,
        Expected::Long => u32::MAX,
    };
    Watched { future: Box::pin(future), left }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let started = Instant::now();
        let used = thread_time::recent(started);
        let counted = if this.left > 0 { Counted::begin() } else { None };
        let polled = match &counted {
            Some(_) => off_worker(|| this.future.as_mut().poll(cx)),
            None => this.future.as_mut().poll(cx),
        };
        drop(counted);
        this.left = this.left.saturating_sub(1);
        // The clock first: to read it costs less.
        if started.elapsed() > LONG_POLL && thread_time::now().saturating_sub(used) > LONG_POLL {
            this.left = this.left.max(POLLS);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, sync::mpsc};

    use super::*;

    /// Time for another task to run; it is over only if it cannot.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Uses the processor for that long.
    fn work(time: Duration) {
        let begin = thread_time::now();
        while thread_time::now() - begin < time {
            std::hint::spin_loop();
        }
    }

    /// A future of two polls: the first takes `first`, the second waits for another task of the same worker.
    async fn blocks_in_its_second_poll(expected: Expected, first: Duration) {
        let (sender, receiver) = mpsc::channel();
        let mut polls = 0;
        let blocking = poll_fn(move |cx| {
            polls += 1;
            if polls == 1 {
                work(first);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let sender = sender.clone();
            tokio::spawn(async move { sender.send(()).expect("somebody waits") });
            Poll::Ready(receiver.recv_timeout(PATIENCE).is_ok())
        });
        let task = tokio::spawn(watched(expected, blocking));
        assert!(task.await.expect("no panic"), "the other task could not run");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_long_task_does_not_hold_its_worker() {
        for expected in [Expected::Long, Expected::LongStart] {
            blocks_in_its_second_poll(expected, Duration::ZERO).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_task_that_was_long_once_does_not_hold_its_worker() {
        blocks_in_its_second_poll(Expected::Short, LONG_POLL * 2).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_task_that_only_waited_is_not_long() {
        let mut polls = 0;
        let waiting = poll_fn(|cx| {
            polls += 1;
            thread::sleep(LONG_POLL * 4);
            cx.waker().wake_by_ref();
            if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut watched = watched(Expected::Short, waiting);
        Pin::new(&mut watched).await;
        assert_eq!(watched.left, 0, "the thread did not use the processor");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_long_tasks_do_not_take_a_thread_each() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let long = || {
            MOST.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(5));
            RUNNING.fetch_sub(1, Ordering::SeqCst);
            Poll::Ready(())
        };
        let tasks: Vec<_> =
            (0..300).map(|_| tokio::spawn(watched(Expected::Long, poll_fn(move |_| long())))).collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        let most = MOST.load(Ordering::SeqCst);
        assert!(most <= *MAX_THREADS + 2, "{most}: those off the workers, and one on each worker");
    }

    #[tokio::test]
    async fn a_runtime_with_one_thread_polls_as_always() {
        assert_eq!(watched(Expected::Long, async { 7 }).await, 7);
    }
}
