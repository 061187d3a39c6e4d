//! The writer's connection, and what it remembers of the runs that are being written to.
//!
//! An append needs to know its run's claim and where its log ends. Asking the database every time, and writing the end
//! back every time, costs more than the events themselves. So the writer remembers, for as long as it is sure: inside a
//! write transaction nobody else writes, and `PRAGMA data_version` says whether anybody else did since the last one.

use std::{cell::RefCell, collections::HashMap, ops::Deref};

use agentwire_core::event::RunId;
use rusqlite::Connection;

use crate::{
    error::StoreError,
    model::{Owner, RunKey, Seq},
    rules::ClaimState,
};

/// Runs remembered at most; more than one process has live ones of. Beyond it all are asked for anew.
const REMEMBERED: usize = 16 * 1024;

/// What an append needs to know of its run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) id: i64,
    pub(super) thread: i64,
    pub(super) next_seq: Seq,
    pub(super) claim: ClaimState,
}

/// A connection for writing.
pub(super) struct Session {
    db: Connection,
    heads: RefCell<HashMap<RunKey, Head>>,
    version: Option<i64>,
}

impl Deref for Session {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.db
    }
}

impl Session {
    pub(super) fn new(db: Connection) -> Self {
        Self { db, heads: RefCell::default(), version: None }
    }

    /// Opens a transaction that is the only one to write.
    pub(super) fn begin(&mut self) -> Result<(), StoreError> {
        self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let version = self.db.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if self.version.replace(version) != Some(version) {
            self.forget_all();
        }
        Ok(())
    }

    pub(super) fn commit(&self) -> Result<(), StoreError> {
        self.db.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    /// Undoes what was begun. Says whether the connection can be used again.
    pub(super) fn undo(&self) -> bool {
        self.forget_all();
        self.db.is_autocommit() || self.db.execute_batch("ROLLBACK").is_ok()
    }

    pub(super) fn head(&self, run: &RunKey) -> Option<Head> {
        self.heads.borrow().get(run).copied()
    }

    pub(super) fn remember(&self, run: RunKey, head: Head) {
        let mut heads = self.heads.borrow_mut();
        if heads.len() >= REMEMBERED && !heads.contains_key(&run) {
            heads.clear();
        }
        heads.insert(run, head);
    }

    /// To be called by whatever changes a run other than by appending.
    pub(super) fn forget(&self, owner: &Owner, run: &RunId) {
        self.heads.borrow_mut().remove(&RunKey { owner: owner.clone(), run: run.clone() });
    }

    /// To be called by whatever changes runs without knowing their names.
    pub(super) fn forget_all(&self) {
        self.heads.borrow_mut().clear();
    }
}
