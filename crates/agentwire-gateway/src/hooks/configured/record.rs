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

use agentwire_core::event::Event;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::task::TaskTracker;

use super::{
    super::{RunContext, failed},
    http::{HookServer, OnFailure},
    server_failed,
};
use crate::{error::UpstreamError, stream::log_codec::Encoder};

/// The capacity of the queue in bytes: a second or two of a fast run.
const MAX_WAITING: usize = 4 << 20;

/// The minimum cost of an event in the queue, so that the number of small ones is bounded too.
const LEAST: usize = 256;

/// The largest number of events in one request.
const BATCH: usize = 256;

/// The record of one run.
pub(super) struct Recorder {
    server: Arc<HookServer>,
    tasks: TaskTracker,
    room: Arc<Semaphore>,
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
    /// A mark: all events before it must have been accepted.
    ReaderCursor(u64),
}

#[derive(Clone, Debug, Default)]
struct Progress {
    /// The last mark that was reached.
    mark: u64,
    problem: Option<String>,
}

impl Recorder {
    pub(super) fn new(server: Arc<HookServer>, run: &RunContext) -> Self {
        Self {
            server,
            tasks: run.tasks.clone(),
            room: Arc::new(Semaphore::new(MAX_WAITING)),
            encoder: Mutex::new(Encoder::new(&run.thread, &run.run)),
            queue: Mutex::default(),
        }
    }

    pub(super) fn record<'r>(
        &'r self,
        event: &Event,
        about: &'r Map<String, Value>,
    ) -> impl Future<Output = Result<(), UpstreamError>> + Send + use<'r> {
        let encoded = self.encoder.lock().unwrap_or_else(PoisonError::into_inner).encode(event);
        let text = encoded.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
        let is_last = event.is_terminal();
        async move {
            let Some(text) = text else { return Ok(()) };
            let mut queue = self.queue(about);
            let cost = u32::try_from(text.len().clamp(LEAST, MAX_WAITING)).unwrap_or(u32::MAX);
            let room = Arc::clone(&self.room);
            if self.server.on_failure == OnFailure::Open {
                let entry = match room.try_acquire_many_owned(cost) {
                    Ok(permit) => Entry::Event(text, permit),
                    Err(_) => Entry::Lost,
                };
                // The task ends only with all senders.
                queue.entries.send(entry).ok();
                return Ok(());
            }
            let gone = || failed("the record of the run is gone");
            // A failed server frees its room too, when its task ends.
            let permit = room.acquire_many_owned(cost).await.map_err(|_| gone())?;
            if let Some(problem) = &queue.progress.borrow_and_update().problem {
                return Err(server_failed("output", problem));
            }
            queue.entries.send(Entry::Event(text, permit)).map_err(|_| gone())?;
            if is_last {
                queue.entries.send(Entry::ReaderCursor(1)).map_err(|_| gone())?;
                let done = |progress: &Progress| progress.mark == 1 || progress.problem.is_some();
                let progress = queue.progress.wait_for(done).await.map_err(|_| gone())?;
                if let Some(problem) = &progress.problem {
                    return Err(server_failed("output", problem));
                }
            }
            Ok(())
        }
    }

    fn queue(&self, about: &Map<String, Value>) -> Queue {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue
            .get_or_insert_with(|| {
                let (entries, receiver) = mpsc::unbounded_channel();
                let (told, progress) = watch::channel(Progress::default());
                let work = Work { server: Arc::clone(&self.server), about: about.clone(), told };
                self.tasks.spawn(work.deliver(receiver));
                Queue { entries, progress }
            })
            .clone()
    }
}

/// The task beside the run.
struct Work {
    server: Arc<HookServer>,
    about: Map<String, Value>,
    told: watch::Sender<Progress>,
}

impl Work {
    async fn deliver(self, mut entries: mpsc::UnboundedReceiver<Entry>) {
        let mut some = Vec::new();
        let (mut lost, mut lost_in_all) = (0u64, 0u64);
        while entries.recv_many(&mut some, BATCH).await > 0 {
            let (mut events, mut permits, mut mark) = (Vec::new(), Vec::new(), None);
            for entry in some.drain(..) {
                match entry {
                    Entry::Event(text, permit) => {
                        events.push(text);
                        permits.push(permit);
                    }
                    Entry::Lost => lost += 1,
                    Entry::ReaderCursor(number) => mark = Some(number),
                }
            }
            if !events.is_empty() {
                let count = events.len() as u64;
                match self.server.post(self.body(&events, lost), false).await {
                    Ok(_) => {
                        lost_in_all += lost;
                        lost = 0;
                    }
                    Err(problem) if self.server.on_failure == OnFailure::Closed => {
                        self.told.send_modify(|progress| progress.problem = Some(problem));
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
            if let Some(mark) = mark {
                self.told.send_modify(|progress| progress.mark = mark);
            }
        }
        if lost + lost_in_all > 0 {
            let run = self.about.get("runId").and_then(Value::as_str).unwrap_or_default();
            tracing::warn!(run, events = lost + lost_in_all, "a run was not recorded whole");
        }
    }

    /// The events are JSON texts.
    fn body(&self, events: &[String], lost: u64) -> String {
        let mut head = Map::from_iter([("hook".to_owned(), Value::from("output"))]);
        head.extend(self.about.clone());
        if lost > 0 {
            head.insert("lost".into(), lost.into());
        }
        let mut body = Value::Object(head).to_string();
        body.pop();
        body.push_str(r#","events":["#);
        body.push_str(&events.join(","));
        body.push_str("]}");
        body
    }
}
