//! Several futures of one task, each polled only after it was woken.
//!
//! `select!` polls all of its futures whenever one of them wakes the task. The loops of a run and of a connection wait for
//! one event source and for a handful of rare signals: commands, timers, tokens that all runs share. At the pace of
//! models an event is a wake-up, so polling the others costs more than the event itself. A [`WakeSet`] gives each future
//! a waker of its own and remembers which of them were woken.

use std::{
    array,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

/// Rounds of one poll. A future that wakes itself again and again must not keep the task from yielding.
const MAX_ROUNDS: usize = 4;

/// The wakers of `N` futures of one task; at most 32.
#[derive(Debug)]
pub(crate) struct WakeSet<const N: usize> {
    shared: Arc<Shared>,
    wakers: [Waker; N],
    /// The waker that is in `shared`.
    task: Option<Waker>,
}

#[derive(Debug)]
struct Shared {
    /// One bit for each future that was woken since its last poll.
    woken: AtomicU32,
    /// True while the task polls its futures: it finds those that are woken now without being woken itself.
    is_polling: AtomicBool,
    task: Mutex<Option<Waker>>,
}

/// The waker of one future.
struct Source {
    shared: Arc<Shared>,
    bit: u32,
}

impl Wake for Source {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Shared { woken, is_polling, task } = &*self.shared;
        // A bit that is set already has woken the task, or belongs to a future that is not polled for now.
        if woken.fetch_or(self.bit, SeqCst) & self.bit == 0
            && !is_polling.load(SeqCst)
            && let Some(task) = &*task.lock().unwrap_or_else(PoisonError::into_inner)
        {
            task.wake_by_ref();
        }
    }
}

impl<const N: usize> WakeSet<N> {
    /// A set in which every future is polled at first.
    pub(crate) fn new() -> Self {
        const { assert!(N <= 32) };
        let shared = Arc::new(Shared {
            woken: AtomicU32::new(u32::MAX),
            is_polling: AtomicBool::new(false),
            task: Mutex::new(None),
        });
        let waker =
            |index: usize| Waker::from(Arc::new(Source { shared: shared.clone(), bit: 1u32 << index }));
        Self { wakers: array::from_fn(waker), task: None, shared }
    }

    /// Polls some of the futures by [`Turn::poll`]. All futures that `poll` offers must be offered again by the next call,
    /// unless they are not to be polled for now.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Turn<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if !self.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            self.task = Some(cx.waker().clone());
            *self.shared.task.lock().unwrap_or_else(PoisonError::into_inner) = self.task.clone();
        }
        for _ in 0..MAX_ROUNDS {
            self.shared.is_polling.store(true, SeqCst);
            let mut turn = Turn { shared: &self.shared, wakers: &self.wakers, offered: 0 };
            let result = poll(&mut turn);
            let offered = turn.offered;
            // In this order: a future that is woken from here on wakes the task, and one that was woken before is found.
            self.shared.is_polling.store(false, SeqCst);
            if result.is_ready() || self.shared.woken.load(SeqCst) & offered == 0 {
                return result;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Has a future polled the next time, although nothing has woken it.
    pub(crate) fn mark(&self, index: usize) {
        self.shared.woken.fetch_or(1 << index, SeqCst);
    }
}

/// One round of polls.
pub(crate) struct Turn<'s> {
    shared: &'s Shared,
    wakers: &'s [Waker],
    /// The futures that were offered in this round.
    offered: u32,
}

impl Turn<'_> {
    /// Polls the future `index` if it was woken. One that is ready is polled the next time as well.
    pub(crate) fn poll<T>(
        &mut self,
        index: usize,
        future: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let bit = 1 << index;
        self.offered |= bit;
        if self.shared.woken.load(SeqCst) & bit == 0 {
            return Poll::Pending;
        }
        self.shared.woken.fetch_and(!bit, SeqCst);
        let result = future(&mut Context::from_waker(&self.wakers[index]));
        if result.is_ready() {
            self.shared.woken.fetch_or(bit, SeqCst);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{Future, poll_fn},
        pin::pin,
        sync::atomic::AtomicUsize,
        time::Duration,
    };

    use tokio::sync::{Notify, mpsc};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_woken_futures_are_polled() {
        let (sender, mut receiver) = mpsc::channel::<u32>(8);
        let (rare, polls) = (Notify::new(), AtomicUsize::new(0));
        let mut rare_signal = pin!(rare.notified());
        let mut wakes = WakeSet::<2>::new();
        for number in 0..100 {
            sender.send(number).await.unwrap();
            let received = poll_fn(|cx| {
                wakes.poll(cx, |wakes| {
                    let signal = wakes.poll(0, |cx| {
                        polls.fetch_add(1, SeqCst);
                        rare_signal.as_mut().poll(cx)
                    });
                    assert!(signal.is_pending());
                    wakes.poll(1, |cx| receiver.poll_recv(cx))
                })
            });
            assert_eq!(received.await, Some(number));
        }
        assert_eq!(polls.load(SeqCst), 1);
        rare.notify_one();
        let signal = poll_fn(|cx| wakes.poll(cx, |wakes| wakes.poll(0, |cx| rare_signal.as_mut().poll(cx))));
        tokio::time::timeout(Duration::from_secs(60), signal).await.unwrap();
    }

    #[tokio::test]
    async fn a_future_woken_from_inside_is_polled_in_the_same_poll() {
        let (sender, mut receiver) = mpsc::channel::<u32>(1);
        let mut wakes = WakeSet::<2>::new();
        let mut polls = 0;
        let received = poll_fn(|cx| {
            polls += 1;
            wakes.poll(cx, |wakes| {
                let received = wakes.poll(0, |cx| receiver.poll_recv(cx));
                // Offered after the receiver, which it wakes.
                let _: Poll<()> = wakes.poll(1, |_| {
                    sender.try_send(7).unwrap();
                    Poll::Pending
                });
                received
            })
        });
        assert_eq!(received.await, Some(7));
        assert_eq!(polls, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_that_was_not_offered_is_polled_when_it_is() {
        let notify = Notify::new();
        let mut signal = pin!(notify.notified());
        let mut wakes = WakeSet::<2>::new();
        let mut poll = async |is_offered: bool| {
            let woken = poll_fn(|cx| {
                wakes.poll(cx, |wakes| {
                    let _: Poll<()> = wakes.poll(1, |_| Poll::Pending);
                    if is_offered { wakes.poll(0, |cx| signal.as_mut().poll(cx)) } else { Poll::Pending }
                })
            });
            tokio::time::timeout(Duration::from_millis(1), woken).await.is_ok()
        };
        assert!(!poll(true).await);
        notify.notify_one();
        assert!(!poll(false).await);
        assert!(poll(true).await);
    }

    #[tokio::test]
    async fn a_future_that_wakes_itself_lets_others_run() {
        let mut wakes = WakeSet::<1>::new();
        let endless = poll_fn(|cx| {
            wakes.poll(cx, |wakes| {
                wakes.poll(0, |cx| {
                    cx.waker().wake_by_ref();
                    Poll::<()>::Pending
                })
            })
        });
        tokio::select! {
            () = endless => unreachable!(),
            () = async { for _ in 0..100 { tokio::task::yield_now().await } } => {}
        }
    }

    /// No wake-up is lost while other threads wake: every message arrives, and the token ends the loop.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_wake_up_is_lost_between_threads() {
        const COUNT: u32 = 20_000;
        let token = tokio_util::sync::CancellationToken::new();
        let senders: Vec<_> = (0..3).map(|_| mpsc::channel::<u32>(4)).collect();
        let (senders, mut receivers): (Vec<_>, Vec<_>) = senders.into_iter().unzip();
        let (received, mut total) = mpsc::unbounded_channel();
        let end = token.clone();
        let reader = tokio::spawn(async move {
            let mut wakes = WakeSet::<4>::new();
            let mut ended = pin!(end.cancelled());
            loop {
                let next = poll_fn(|cx| {
                    wakes.poll(cx, |wakes| {
                        if wakes.poll(3, |cx| ended.as_mut().poll(cx)).is_ready() {
                            return Poll::Ready(None);
                        }
                        for (index, receiver) in receivers.iter_mut().enumerate() {
                            let one = wakes.poll(index, |cx| match receiver.poll_recv(cx) {
                                Poll::Ready(Some(one)) => Poll::Ready(one),
                                Poll::Ready(None) | Poll::Pending => Poll::Pending,
                            });
                            if let Poll::Ready(one) = one {
                                return Poll::Ready(Some(one));
                            }
                        }
                        Poll::Pending
                    })
                });
                match next.await {
                    Some(one) => received.send(one).unwrap(),
                    None => return,
                }
            }
        });
        for sender in senders {
            tokio::spawn(async move {
                for number in 0..COUNT {
                    sender.send(number).await.unwrap();
                }
            });
        }
        let all = async {
            for _ in 0..3 * COUNT {
                total.recv().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(300), all).await.unwrap();
        token.cancel();
        tokio::time::timeout(Duration::from_secs(300), reader).await.unwrap().unwrap();
    }
}
