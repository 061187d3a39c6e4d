//! The thread that writes the audit log: keeps what cannot be written, and tries again.

use std::{
    collections::VecDeque,
    sync::{
        Arc, PoisonError,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{State, chain::AuditFile, name::ChainClaim, record::Record};
use crate::{auth::Secret, settings::AuditSettings};

/// Interval of tries while the file cannot be written.
const RETRY: Duration = Duration::from_millis(500);

/// Interval at which ended minutes of folded denials are looked for.
const TICK: Duration = Duration::from_secs(1);

/// Lines that are kept in memory while the file cannot be written; further ones are counted as lost.
const BACKLOG: usize = 4096;

/// A message to the thread.
pub(super) enum Note {
    /// A line. One that `may_close` and cannot be written closes a gateway that is configured so.
    Line { record: Record, may_close: bool },
    /// The line before a change: replies whether it was written.
    Begin(Record, oneshot::Sender<bool>),
    /// Replies when all lines before it were written or have failed.
    Flush(oneshot::Sender<()>),
}

pub(super) struct Writer {
    settings: AuditSettings,
    /// True if gateways of several machines may use the store.
    is_shared: bool,
    state: Arc<State>,
    /// The chain, once its file could be opened.
    claim: Option<ChainClaim>,
    file: Option<AuditFile>,
    backlog: VecDeque<Record>,
    /// The last try that failed, while the file cannot be written.
    failed: Option<Instant>,
}

impl Writer {
    pub(super) fn new(settings: AuditSettings, is_shared: bool, state: Arc<State>) -> Self {
        Self { settings, is_shared, state, claim: None, file: None, backlog: VecDeque::new(), failed: None }
    }

    pub(super) fn run(mut self, notes: &Receiver<Note>) {
        // Opened at once, so that a gateway that cannot write is not ready from the start.
        if let Err(error) = self.open() {
            self.fail(&error, true);
        }
        loop {
            let note = notes.recv_timeout(if self.failed.is_some() { RETRY } else { TICK });
            match note {
                Ok(note) => {
                    self.state.waiting.fetch_sub(1, Ordering::Relaxed);
                    self.take(note);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.add_ended_folds(Some(Instant::now()));
            if self.failed.is_some_and(|failed| failed.elapsed() >= RETRY) || self.has_lost() {
                self.retry();
            }
        }
        self.add_ended_folds(None);
        self.retry();
    }

    fn take(&mut self, note: Note) {
        match note {
            Note::Line { record, may_close } => self.add(record, may_close),
            Note::Begin(record, reply) => {
                let written = self.write(&record);
                if let Err(error) = &written {
                    self.fail(error, true);
                }
                let _ = reply.send(written.is_ok());
            }
            Note::Flush(reply) => {
                self.add_ended_folds(None);
                self.retry();
                let _ = reply.send(());
            }
        }
    }

    fn add_ended_folds(&mut self, now: Option<Instant>) {
        let ended = {
            let mut folds = self.state.folds.lock().unwrap_or_else(PoisonError::into_inner);
            if folds.is_empty() { Vec::new() } else { folds.take_ended(now) }
        };
        for record in ended {
            self.add(record, false);
        }
    }

    /// Writes a line, or keeps it behind those that wait.
    fn add(&mut self, record: Record, may_close: bool) {
        let written = match self.failed {
            None => self.write(&record),
            Some(_) => Err(std::io::ErrorKind::Other.into()),
        };
        let Err(error) = written else { return };
        if self.failed.is_none() || may_close {
            self.fail(&error, may_close);
        }
        if self.backlog.len() < BACKLOG {
            self.backlog.push_back(record);
        } else {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that the file cannot be written.
    fn fail(&mut self, error: &std::io::Error, may_close: bool) {
        if self.failed.is_none() {
            tracing::error!(path = %self.settings.file.display(), %error, "the audit log cannot be written");
            self.failed = Some(Instant::now());
        }
        if may_close {
            self.state.is_broken.store(true, Ordering::Release);
        }
    }

    fn has_lost(&self) -> bool {
        self.failed.is_none() && self.state.lost.load(Ordering::Relaxed) > 0
    }

    /// Writes the lines that wait; after the last one, the gateway goes on.
    fn retry(&mut self) {
        let lost = self.state.lost.load(Ordering::Relaxed);
        if self.failed.is_none() && lost == 0 {
            return;
        }
        // It may be another file by now.
        self.file = self.file.take().filter(|_| self.failed.is_none());
        while let Some(record) = self.backlog.pop_front() {
            if self.write(&record).is_err() {
                self.backlog.push_front(record);
                self.failed = Some(Instant::now());
                return;
            }
        }
        // Shows the gap, and proves that the file can be written if nothing waited.
        if let Err(error) = self.write(&Record::resumed(lost)) {
            self.fail(&error, true);
            self.failed = Some(Instant::now());
            return;
        }
        self.state.lost.fetch_sub(lost, Ordering::Relaxed);
        if self.failed.take().is_some() {
            tracing::info!(path = %self.settings.file.display(), lost, "the audit log can be written again");
        }
        self.state.is_broken.store(false, Ordering::Release);
    }

    fn open(&mut self) -> std::io::Result<&mut AuditFile> {
        if self.file.is_none() {
            let AuditSettings { file, name, key, rotate, .. } = &self.settings;
            let key = key.as_ref().map(Secret::read).transpose().map_err(std::io::Error::other)?;
            let claim = match self.claim.take() {
                Some(claim) => claim,
                None if self.is_shared => ChainClaim::take(file, name.as_deref())?,
                None => ChainClaim::unnamed(file),
            };
            let claim = self.claim.insert(claim);
            let known = self.state.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let file = AuditFile::open(&claim.path, key.as_deref(), known)?;
            self.file = Some(file.named(claim.name.clone()).rotated_at(*rotate));
        }
        Ok(self.file.as_mut().expect("it was opened"))
    }

    fn write(&mut self, record: &Record) -> std::io::Result<()> {
        let file = self.open()?;
        let written = file.add(record);
        let end = file.end();
        *self.state.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
        written
    }
}
