//! Lines about commands of an operator, which change the store beside the gateways.

use std::io;

use agentwire_store::Owner;
use serde_json::{Map, Value};

use super::{chain::AuditFile, name::ChainClaim, record::Record};
use crate::settings::AuditSettings;

/// The audit log of a command: its lines are in the file when a call returns.
pub struct OperatorLog(AuditFile);

impl std::fmt::Debug for OperatorLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OperatorLog").finish_non_exhaustive()
    }
}

impl OperatorLog {
    /// Opens or creates the file of the settings. With a shared store, the commands of a machine have a chain of their own.
    ///
    /// # Errors
    /// When the file or its key cannot be used.
    pub fn open(settings: &AuditSettings, is_shared: bool) -> io::Result<Self> {
        let key = settings.key.as_ref().map(crate::auth::Secret::read).transpose();
        let key = key.map_err(io::Error::other)?;
        let claim = if is_shared {
            ChainClaim::of_commands(&settings.file, settings.name.as_deref())
        } else {
            ChainClaim::unnamed(&settings.file)
        };
        let file = AuditFile::open(&claim.path, key.as_deref(), None)?;
        Ok(Self(file.named(claim.name).rotated_at(settings.rotate)))
    }

    /// Adds a line. `about` is its subject, `outcome` is `ok`, `begun` or the reason of a failure.
    ///
    /// # Errors
    /// When the line cannot be written; nothing of it is in the file then.
    pub fn add(&mut self, action: &str, about: &Map<String, Value>, outcome: &str) -> io::Result<()> {
        let mut record = Record::new(&Owner::new("", "", ""), action);
        for (name, value) in about {
            record = record.with(name, value.clone());
        }
        self.0.add(&record.with("auth", "command").with("outcome", outcome))
    }
}
