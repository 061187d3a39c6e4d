//! API keys in memory.

use super::tables::Tables;
use crate::{
    clock::Time,
    error::{Conflict, Missing, StoreError},
    model::{ApiKey, KeyChange, KeyChanges, Text},
};

impl Tables {
    pub(super) fn add_key(&mut self, key: ApiKey) -> Result<(), StoreError> {
        if self.keys.iter().any(|(_, known)| known.id == key.id) {
            return Err(StoreError::Conflict(Conflict::Key));
        }
        let version = self.next_number();
        self.keys.push((version, key));
        Ok(())
    }

    pub(super) fn key_changes(&self, after: u64) -> KeyChanges {
        let mut changed: Vec<_> = self.keys.iter().filter(|(version, _)| *version > after).collect();
        changed.sort_by_key(|(version, _)| *version);
        KeyChanges {
            version: changed.last().map_or(after, |(version, _)| *version),
            keys: changed.into_iter().map(|(_, key)| key.clone()).collect(),
        }
    }

    pub(super) fn change_key(
        &mut self,
        id: &str,
        change: KeyChange,
        now: Time,
    ) -> Result<ApiKey, StoreError> {
        let next = self.next_number();
        let found = self.keys.iter_mut().find(|(_, key)| *key.id == *id);
        let (version, key) = found.ok_or(StoreError::NotFound(Missing::Key))?;
        *version = next;
        match change {
            KeyChange::Revoke => _ = key.revoked.get_or_insert(now),
            KeyChange::ExpireAt(time) => key.expires = Some(key.expires.map_or(time, |end| end.min(time))),
        }
        Ok(key.clone())
    }

    pub(super) fn touch_keys(&mut self, used: &[(Text, Time)]) {
        for (id, time) in used {
            if let Some((_, key)) = self.keys.iter_mut().find(|(_, key)| key.id == *id) {
                key.last_used = key.last_used.max(Some(*time));
            }
        }
    }
}
