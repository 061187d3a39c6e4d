//! The server behind the connections: its identity, its start, and the epoch of the store.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use tokio_postgres::{
    Client,
    types::{ToSql, Type},
};

use super::connect::clock;
use crate::clock::Time;

/// The timeline of the server. It changes when a standby is promoted.
macro_rules! timeline {
    () => {
        "('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int"
    };
}
pub(super) use timeline;

/// The server, as it was last seen. Zeros if it hides its identity: services that do so promise on their own that a failover
/// loses nothing.
#[derive(Debug, Default)]
pub(super) struct Server {
    system: AtomicI64,
    timeline: AtomicI32,
    /// See `meta.epoch`.
    epoch: AtomicU32,
    /// The start of the server, or the time at which it took over: milliseconds since the Unix epoch by its clock.
    started: AtomicU64,
}

impl Server {
    pub(super) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(super) fn started(&self) -> Time {
        Time(self.started.load(Ordering::Relaxed))
    }

    /// The timeline, if it is known. Whoever sends it along with the epoch reads it first: a new one never comes with an old
    /// epoch.
    pub(super) fn timeline(&self) -> Option<i32> {
        Some(self.timeline.load(Ordering::Acquire)).filter(|timeline| *timeline != 0)
    }

    /// System identifier and timeline, if they are known.
    pub(super) fn identity(&self) -> Option<(i64, i32)> {
        self.timeline().map(|timeline| (self.system.load(Ordering::Relaxed), timeline))
    }

    /// Notes the start of the server, and compares its identity with the stored one. Another one, or another timeline of the
    /// same one, means that acknowledged writes may be lost: the first gateway that sees it raises the epoch.
    pub(super) async fn read(&self, client: &Client, schema: &str) -> Result<(), tokio_postgres::Error> {
        let start =
            concat!("SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint, ", clock!());
        let rows = client.query_typed(start, &[]).await?;
        let (started, now) = rows.first().map_or((0, 0), |row| (row.get::<_, i64>(0), row.get::<_, i64>(1)));
        let note_start = |time: i64| {
            self.started.fetch_max(u64::try_from(time).unwrap_or(0), Ordering::Relaxed);
        };
        note_start(started);
        let identity = concat!("SELECT (pg_control_system()).system_identifier, ", timeline!());
        let Ok(rows) = client.query_typed(identity, &[]).await else { return Ok(()) };
        let Some(row) = rows.first() else { return Ok(()) };
        let (system, timeline): (i64, i32) = (row.get(0), row.get(1));
        let meta = format!("{schema}.meta");
        let exists =
            client.query_typed("SELECT to_regclass($1)::text IS NOT NULL", &[(&meta, Type::TEXT)]).await?;
        if exists.first().is_some_and(|row| row.get(0)) {
            let update = format!(
                "UPDATE {schema}.meta SET epoch = CASE WHEN system_id IS NULL THEN epoch ELSE epoch + 1 END, \
                   system_id = $1, timeline = $2 \
                 WHERE system_id IS DISTINCT FROM $1 OR timeline IS DISTINCT FROM $2"
            );
            let identity: [(&(dyn ToSql + Sync), Type); 2] = [(&system, Type::INT8), (&timeline, Type::INT4)];
            client.query_typed(&update, &identity).await?;
            let rows = client.query_typed(&format!("SELECT epoch FROM {schema}.meta"), &[]).await?;
            if let Some(row) = rows.first() {
                self.epoch.store(u32::try_from(row.get::<_, i32>(0)).unwrap_or(0), Ordering::Release);
            }
        }
        if self.identity().is_some_and(|known| known != (system, timeline)) {
            // A standby that was promoted runs since long ago, and leases have expired meanwhile.
            note_start(now);
        }
        self.system.store(system, Ordering::Relaxed);
        self.timeline.store(timeline, Ordering::Release);
        Ok(())
    }
}
