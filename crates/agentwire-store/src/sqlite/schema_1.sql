CREATE TABLE schema_version (
  version INTEGER PRIMARY KEY,
  applied INTEGER NOT NULL
) STRICT;

-- One row: the last fence given.
CREATE TABLE fences (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  last INTEGER NOT NULL
) STRICT;
INSERT INTO fences (id, last) VALUES (1, 0);

CREATE TABLE threads (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  thread TEXT NOT NULL,
  agent TEXT NOT NULL,
  metadata TEXT,
  created INTEGER NOT NULL,
  updated INTEGER NOT NULL,
  state_seq INTEGER NOT NULL DEFAULT 0,
  leased INTEGER,                        -- the run that has the thread
  UNIQUE (tenant, user, thread)
) STRICT;
CREATE INDEX threads_by_owner ON threads (tenant, user, id);
CREATE INDEX threads_by_age ON threads (updated);

CREATE TABLE states (thread INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE TABLE messages (thread INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;

CREATE TABLE runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  run TEXT NOT NULL,
  thread INTEGER NOT NULL,
  agent TEXT NOT NULL,
  status TEXT NOT NULL,
  cause TEXT,
  created INTEGER NOT NULL,
  started INTEGER,
  updated INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  holder TEXT NOT NULL,
  address TEXT,
  lease_until INTEGER,                   -- when the claim ends; null when there is none
  first_retained INTEGER NOT NULL DEFAULT 0,
  next_seq INTEGER NOT NULL DEFAULT 0,   -- set when the status changes; in between, the log knows better
  kept TEXT NOT NULL DEFAULT 'exact',    -- what is kept of the log: exact, compacted, nothing
  UNIQUE (tenant, user, run)
) STRICT;
CREATE INDEX runs_by_thread ON runs (thread, id);
CREATE INDEX runs_live ON runs (id) WHERE status IN ('queued', 'running', 'paused');
CREATE INDEX runs_waiting ON runs (id) WHERE status = 'waiting';
CREATE INDEX runs_by_end ON runs (updated)
  WHERE kept <> 'nothing' AND status IN ('waiting', 'finished', 'failed', 'stopped');

CREATE TABLE inputs (run INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;

CREATE TABLE log (
  id INTEGER PRIMARY KEY,
  run INTEGER NOT NULL,
  seq INTEGER NOT NULL,                  -- of the first event in the body
  events INTEGER NOT NULL,               -- how many there are
  fence INTEGER NOT NULL,
  body BLOB NOT NULL                     -- each event behind its length: four bytes, little end first
) STRICT;
CREATE UNIQUE INDEX log_by_run ON log (run, seq);

CREATE TABLE compacted (run INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;

CREATE TABLE pending (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  thread INTEGER NOT NULL,
  run INTEGER NOT NULL,
  pending TEXT NOT NULL,
  kind TEXT NOT NULL,
  body TEXT NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER,
  answer TEXT,
  answered_by TEXT,
  answered INTEGER,
  answer_run TEXT,
  UNIQUE (run, pending)
) STRICT;
CREATE INDEX pending_by_thread ON pending (thread, id);

CREATE TABLE feedback (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  thread INTEGER NOT NULL,
  run TEXT,
  body TEXT NOT NULL,
  created INTEGER NOT NULL
) STRICT;
CREATE INDEX feedback_by_thread ON feedback (thread, id);
