//! The writer's connection with a cache of the runs being written.
//!
//! An append needs its run's claim and the end of its log. Querying both, and writing the end back, for every append costs
//! more than the events themselves. The cache is valid as long as no other process writes: none can inside a write
//! transaction, and `PRAGMA data_version` changes if one did since the last transaction.

use std::{cell::RefCell, collections::HashMap, ops::Deref};

use agentwire_core::event::RunId;
use rusqlite::{Connection, OptionalExtension};

use super::row::get_time;
use crate::{
    clock::Time,
    error::StoreError,
    model::{Fence, Holder, Owner, RunKey, RunStatus, Seq},
    rules::is_lease_live,
};

/// Maximum number of cached runs, more than one process has live. The cache is emptied when it is full.
const MAX_CACHED_HEADS: usize = 16 * 1024;

/// The fields of a run that an append needs.
#[derive(Clone, Debug)]
pub(super) struct RunHead {
    pub(super) id: i64,
    pub(super) thread: i64,
    pub(super) next_seq: Seq,
    pub(super) status: RunStatus,
    pub(super) fence: Fence,
    pub(super) holder: Holder,
    pub(super) is_claimed: bool,
}

/// The connection of the writer thread.
pub(super) struct Session {
    db: Connection,
    heads: RefCell<HashMap<RunKey, RunHead>>,
    /// The leases of processes, as far as they were read; `None` for a process without one.
    leases: RefCell<HashMap<Holder, Option<Time>>>,
    /// `PRAGMA data_version` at the last transaction.
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
        Self { db, heads: RefCell::default(), leases: RefCell::default(), version: None }
    }

    /// Starts a transaction with the write lock.
    pub(super) fn begin(&mut self) -> Result<(), StoreError> {
        self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let version = self.db.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if self.version.replace(version) != Some(version) {
            self.invalidate_all();
        }
        Ok(())
    }

    pub(super) fn commit(&self) -> Result<(), StoreError> {
        self.db.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    /// Rolls back. Returns whether the connection is still usable.
    pub(super) fn rollback(&self) -> bool {
        self.invalidate_all();
        self.db.is_autocommit() || self.db.execute_batch("ROLLBACK").is_ok()
    }

    pub(super) fn head(&self, run: &RunKey) -> Option<RunHead> {
        self.heads.borrow().get(run).cloned()
    }

    pub(super) fn cache_head(&self, run: RunKey, head: RunHead) {
        let mut heads = self.heads.borrow_mut();
        if heads.len() >= MAX_CACHED_HEADS && !heads.contains_key(&run) {
            heads.clear();
        }
        heads.insert(run, head);
    }

    /// Must be called by every change of a run other than an append.
    pub(super) fn invalidate(&self, owner: &Owner, run: &RunId) {
        self.heads.borrow_mut().remove(&RunKey { owner: owner.clone(), run: run.clone() });
    }

    /// Must be called by changes of runs whose keys are not known.
    pub(super) fn invalidate_all(&self) {
        self.heads.borrow_mut().clear();
        self.invalidate_leases();
    }

    /// Must be called by every change of a lease.
    pub(super) fn invalidate_leases(&self) {
        self.leases.borrow_mut().clear();
    }

    /// True if the lease of a process has not expired.
    pub(super) fn has_lease(&self, holder: &Holder, now: Time) -> Result<bool, StoreError> {
        if let Some(until) = self.leases.borrow().get(holder) {
            return Ok(is_lease_live(*until, now));
        }
        let mut find = self.db.prepare_cached("SELECT lease_until FROM replicas WHERE holder = ?1")?;
        let until = find.query_row([holder.as_str()], |row| get_time(row, 0)).optional()?;
        self.leases.borrow_mut().insert(holder.clone(), until);
        Ok(is_lease_live(until, now))
    }
}
