//! Sends the events of the log to a server, in batches beside the run.
//!
//! A run does not wait for each event: events are queued in order, within a bound, and sent in batches. With `open` the run
//! never waits for the server; events that do not fit into the queue or are rejected are dropped and counted. With `closed`
//! a full queue blocks the run, a rejected batch ends it, and its terminal event waits until all events before it were
//! accepted: a finished run is recorded completely.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use agentwire_core::event::{Event, RunId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::task::TaskTracker;

use super::{
    super::{RunContext, failed},
    body::{RunDescription, list},
    http::{HookServer, OnFailure},
    server_failed,
};
use crate::{error::UpstreamError, stream::log_codec::Encoder};

const HOOK: &str = "output_record";

/// The capacity of the queue in bytes: a second or two of a fast run.
const MAX_QUEUED: usize = 4 << 20;

/// The minimum cost of an event in the queue, so that the number of small ones is bounded too.
const MIN_COST: usize = 256;

/// The largest number of events in one request.
const MAX_BATCH: usize = 256;

/// The record of one run.
pub(super) struct Recorder {
    server: Arc<HookServer>,
    run: RunId,
    tasks: TaskTracker,
    capacity: Arc<Semaphore>,
    encoder: Mutex<Encoder>,
    queue: Mutex<Option<Queue>>,
}

/// The queue, created with the first event.
#[derive(Clone)]
struct Queue {
    entries: mpsc::UnboundedSender<Entry>,
    progress: watch::Receiver<Progress>,
}

enum Entry {
    Event(String, OwnedSemaphorePermit),
    /// An event that did not fit.
    Lost,
    /// The end of the run: all events before it must have been accepted.
    End,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    /// All events of the run were accepted.
    is_complete: bool,
    problem: Option<String>,
}

impl Recorder {
    pub(super) fn new(server: Arc<HookServer>, run: &RunContext) -> Self {
        Self {
            server,
            run: run.run.clone(),
            tasks: run.tasks.clone(),
            capacity: Arc::new(Semaphore::new(MAX_QUEUED)),
            encoder: Mutex::new(Encoder::new(&run.thread, &run.run)),
            queue: Mutex::default(),
        }
    }

    pub(super) fn record<'r>(
        &'r self,
        event: &Event,
        about: &'r RunDescription,
    ) -> impl Future<Output = Result<(), UpstreamError>> + Send + use<'r> {
        let encoded = self.encoder.lock().unwrap_or_else(PoisonError::into_inner).encode(event);
        let text = encoded.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
        let is_last = event.is_terminal();
        async move {
            let Some(text) = text else { return Ok(()) };
            let mut queue = self.queue(about);
            let cost = u32::try_from(text.len().clamp(MIN_COST, MAX_QUEUED)).unwrap_or(u32::MAX);
            let capacity = Arc::clone(&self.capacity);
            if self.server.on_failure == OnFailure::Open {
                let entry = match capacity.try_acquire_many_owned(cost) {
                    Ok(permit) => Entry::Event(text, permit),
                    Err(_) => Entry::Lost,
                };
                // The task ends only with all senders.
                queue.entries.send(entry).ok();
                return Ok(());
            }
            let gone = || failed("the record of the run is gone");
            // When the server fails, its task ends and releases the permits.
            let permit = capacity.acquire_many_owned(cost).await.map_err(|_| gone())?;
            if let Some(problem) = &queue.progress.borrow_and_update().problem {
                return Err(server_failed(HOOK, problem));
            }
            queue.entries.send(Entry::Event(text, permit)).map_err(|_| gone())?;
            if is_last {
                queue.entries.send(Entry::End).map_err(|_| gone())?;
                let done = |progress: &Progress| progress.is_complete || progress.problem.is_some();
                let progress = queue.progress.wait_for(done).await.map_err(|_| gone())?;
                if let Some(problem) = &progress.problem {
                    return Err(server_failed(HOOK, problem));
                }
            }
            Ok(())
        }
    }

    fn queue(&self, about: &RunDescription) -> Queue {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue
            .get_or_insert_with(|| {
                let (entries, receiver) = mpsc::unbounded_channel();
                let (report, progress) = watch::channel(Progress::default());
                let (server, run) = (Arc::clone(&self.server), self.run.clone());
                let delivery = Delivery { server, about: about.clone(), run, report };
                self.tasks.spawn(delivery.run(receiver));
                Queue { entries, progress }
            })
            .clone()
    }
}

/// The task that sends the batches.
struct Delivery {
    server: Arc<HookServer>,
    about: RunDescription,
    run: RunId,
    report: watch::Sender<Progress>,
}

impl Delivery {
    async fn run(self, mut entries: mpsc::UnboundedReceiver<Entry>) {
        let mut batch = Vec::new();
        let (mut lost, mut total_lost) = (0u64, 0u64);
        while entries.recv_many(&mut batch, MAX_BATCH).await > 0 {
            let (mut events, mut permits, mut is_complete) = (Vec::new(), Vec::new(), false);
            for entry in batch.drain(..) {
                match entry {
                    Entry::Event(text, permit) => {
                        events.push(text);
                        permits.push(permit);
                    }
                    Entry::Lost => lost += 1,
                    Entry::End => is_complete = true,
                }
            }
            if !events.is_empty() {
                let count = events.len() as u64;
                match self.server.post(self.body(&events, lost), false).await {
                    Ok(_) => {
                        total_lost += lost;
                        lost = 0;
                    }
                    Err(problem) if self.server.on_failure == OnFailure::Closed => {
                        self.report.send_modify(|progress| progress.problem = Some(problem));
                        // The following events end the run and are not sent.
                        return;
                    }
                    Err(problem) => {
                        tracing::warn!(
                            problem,
                            events = count,
                            "events were not recorded by the server of a hook"
                        );
                        lost += count;
                    }
                }
            }
            drop(permits);
            if is_complete {
                self.report.send_modify(|progress| progress.is_complete = true);
            }
        }
        if lost + total_lost > 0 {
            let run = &self.run;
            tracing::warn!(%run, events = lost + total_lost, "a run was not recorded whole");
        }
    }

    /// The body of a request; `events` are JSON texts.
    fn body(&self, events: &[String], lost: u64) -> String {
        let (events, count) = (list(events), lost.to_string());
        match lost {
            0 => self.about.body(HOOK, &[("events", &events)]),
            _ => self.about.body(HOOK, &[("lost", &count), ("events", &events)]),
        }
    }
}
