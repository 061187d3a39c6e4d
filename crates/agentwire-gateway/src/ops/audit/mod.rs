//! The audit log: an append-only file of JSON lines, each chained to the previous one.
//!
//! `Caller` collects the findings of the checks about a request, `Record` is a line, `folds` bounds the lines of a flood,
//! `writer` is the thread that writes, `chain` the file, `name` the chains of several gateways, `verify` their verification,
//! `operator` the lines of commands. A request that wrote no line of its own gets one when its response is known, so that no
//! refusal and no list is without one.

mod caller;
mod chain;
mod folds;
mod name;
mod operator;
mod record;
mod verify;
mod writer;

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, SyncSender},
    },
    thread,
    time::Instant,
};

use tokio::sync::oneshot;

pub(crate) use self::{caller::Caller, record::Record};
use self::{
    chain::ChainEnd,
    folds::Folds,
    writer::{Note, Writer},
};
pub use self::{
    name::chains,
    operator::OperatorLog,
    verify::{ChainError, verify, verify_from},
};
use crate::{codes, error::ApiError, limits::Party, settings::Settings};

/// Lines that may wait for the disk; further ones are counted as lost, because no request waits on a worker.
const QUEUE: usize = 8192;

/// Lines of unauthenticated senders that may wait: they leave room for the others.
const QUEUE_OF_NOBODY: usize = QUEUE / 2;

/// State that requests and the thread share.
#[derive(Debug, Default)]
struct State {
    /// True if a line could not be written, until all that wait are.
    is_broken: AtomicBool,
    lost: AtomicU64,
    waiting: AtomicUsize,
    folds: Mutex<Folds>,
    /// The end of the chain, as this process has written it.
    end: Mutex<Option<ChainEnd>>,
}

/// The audit log of a gateway; none if it is off.
#[derive(Debug)]
pub(crate) struct Audit(Option<Log>);

#[derive(Debug)]
struct Log {
    notes: SyncSender<Note>,
    state: Arc<State>,
    /// True if nothing may change while it cannot be written.
    is_closed_on_failure: bool,
}

impl Audit {
    /// The audit log of the settings, written by a thread of its own, so that requests do not wait for the disk. `is_shared`:
    /// gateways of several machines may use the store, and each has a chain with a name.
    pub(crate) fn of(settings: &Settings, is_shared: bool) -> Self {
        let Some(audit) = &settings.audit else { return Self(None) };
        let (notes, received) = mpsc::sync_channel(QUEUE);
        let state = Arc::new(State::default());
        let writer = Writer::new(audit.clone(), is_shared, state.clone());
        let spawned = thread::Builder::new().name("audit".into()).spawn(move || writer.run(&received));
        if let Err(error) = spawned {
            tracing::error!(%error, "there is no audit log: its thread could not be started");
            state.is_broken.store(true, Ordering::Release);
        }
        Self(Some(Log { notes, state, is_closed_on_failure: settings.is_audit_closed_on_failure() }))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// `AUDIT_UNAVAILABLE` if the log cannot be written and nothing may change without it.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        match &self.0 {
            Some(log) if log.is_closed_on_failure && log.state.is_broken.load(Ordering::Acquire) => {
                Err(unavailable())
            }
            _ => Ok(()),
        }
    }

    /// Writes the line before a change, if nothing may change without one.
    pub(crate) async fn begin(&self, caller: Option<&Caller>) -> Result<(), ApiError> {
        self.check()?;
        let (Some(log), Some(caller)) = (&self.0, caller) else { return Ok(()) };
        if !log.is_closed_on_failure {
            return Ok(());
        }
        let record = Record::request(caller, "begin", "begun");
        // The outcome gets a line too.
        caller.is_noted.store(false, Ordering::Relaxed);
        let (reply, written) = oneshot::channel();
        if log.send(Note::Begin(record, reply)) && written.await == Ok(true) {
            return Ok(());
        }
        Err(unavailable())
    }

    pub(crate) fn note(&self, record: Record) {
        if let Some(log) = &self.0 {
            log.add(record, true);
        }
    }

    /// Records a request that wrote no line: its refusal, or its success.
    pub(crate) fn finish(&self, caller: &Caller, code: Option<&'static str>) {
        let Some(log) = &self.0 else { return };
        if caller.is_complete(code.is_some()) {
            return;
        }
        match code {
            Some(code) if is_denial(caller, code) => {
                let is_known = caller.is_authenticated();
                let credential = caller.credential().filter(|_| is_known).map(|(_, credential)| credential);
                let sender = match (credential, Party::peer(caller.peer)) {
                    (Some(credential), _) => credential.to_owned(),
                    (None, Party::Peer(address)) => address.to_string(),
                    (None, _) => String::new(),
                };
                log.deny(&sender, code, is_known, || Record::request(caller, "request", code));
            }
            Some(code) => log.add(Record::request(caller, "request", code), true),
            None if caller.is_admitted() => log.add(Record::request(caller, "request", "ok"), true),
            // A preflight.
            None => {}
        }
    }

    /// Records a connection that was refused before it had a request.
    pub(crate) fn deny_connection(&self, peer: IpAddr, code: &'static str) {
        let Some(log) = &self.0 else { return };
        log.deny(&peer.to_canonical().to_string(), code, false, || {
            Record::connection(peer.to_canonical(), code)
        });
    }

    /// Waits until the lines so far are in the file.
    pub(crate) async fn flush(&self) {
        let Some(log) = &self.0 else { return };
        let (reply, done) = oneshot::channel();
        if log.send(Note::Flush(reply)) {
            let _ = done.await;
        }
    }
}

impl Log {
    fn send(&self, note: Note) -> bool {
        self.state.waiting.fetch_add(1, Ordering::Relaxed);
        let is_sent = self.notes.try_send(note).is_ok();
        if !is_sent {
            self.state.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        is_sent
    }

    fn add(&self, record: Record, may_close: bool) {
        if !self.send(Note::Line { record, may_close }) {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
            if may_close {
                self.state.is_broken.store(true, Ordering::Release);
            }
        }
    }

    fn deny(&self, sender: &str, code: &'static str, is_known: bool, record: impl FnOnce() -> Record) {
        let mut folds = self.state.folds.lock().unwrap_or_else(PoisonError::into_inner);
        let has_line = folds.count(sender, code, Instant::now());
        drop(folds);
        if !has_line {
            return;
        }
        // Nobody can close the gateway by sending requests without a credential.
        if is_known || self.state.waiting.load(Ordering::Relaxed) < QUEUE_OF_NOBODY {
            self.add(record(), is_known);
        } else {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// True if a refusal is one of those that come in floods: before the handler, or by a limit.
fn is_denial(caller: &Caller, code: &str) -> bool {
    let floods = [
        codes::RATE_LIMITED,
        codes::QUOTA_EXCEEDED,
        codes::OVERLOADED,
        codes::UNKNOWN_ROUTE,
        codes::UNKNOWN_AGENT,
        codes::METHOD_NOT_ALLOWED,
    ];
    !caller.is_admitted() || floods.contains(&code)
}

fn unavailable() -> ApiError {
    ApiError::new(codes::AUDIT_UNAVAILABLE, "the audit log cannot be written").retry_after(5)
}
