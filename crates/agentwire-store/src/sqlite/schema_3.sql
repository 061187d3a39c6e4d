-- One lease per process, commands between processes, and the processes that read a run.
CREATE TABLE replicas (
  holder TEXT PRIMARY KEY,
  lease_until INTEGER NOT NULL,
  ttl INTEGER NOT NULL                   -- its lifetime in milliseconds
) STRICT, WITHOUT ROWID;

CREATE TABLE commands (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run INTEGER NOT NULL,
  body TEXT NOT NULL,
  deadline INTEGER NOT NULL,             -- of the take
  taken INTEGER NOT NULL DEFAULT 0,
  reply TEXT
) STRICT;
CREATE INDEX commands_by_run ON commands (run);

CREATE TABLE readers (
  run INTEGER NOT NULL,
  holder TEXT NOT NULL,
  until INTEGER NOT NULL,
  PRIMARY KEY (run, holder)
) STRICT, WITHOUT ROWID;

-- The time of the claim; null when there is none. The lease of the holder decides how long it lasts.
ALTER TABLE runs RENAME COLUMN lease_until TO claimed;
ALTER TABLE runs DROP COLUMN address;
CREATE INDEX runs_live_by_holder ON runs (holder) WHERE status IN ('queued', 'running', 'paused');
