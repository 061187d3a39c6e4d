-- Threads and runs belong to an agent, or to a group of agents: `owner_agent` is part of their keys.
--
-- A thread of version 1 goes, with all its runs, to the agent of its latest run; one without runs to the agent that it was
-- created for. Its id on the agent's server stays the same: `upstream_scope` is null.
CREATE TABLE threads_2 (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  thread TEXT NOT NULL,
  owner_agent TEXT NOT NULL,
  upstream_scope TEXT,                   -- part of its id on the agent's server, if another agent has this id
  metadata TEXT,
  created INTEGER NOT NULL,
  updated INTEGER NOT NULL,
  state_seq INTEGER NOT NULL DEFAULT 0,
  leased INTEGER,                        -- the run that has the thread
  UNIQUE (tenant, user, thread, owner_agent)
) STRICT;
INSERT INTO threads_2
  SELECT t.id, t.tenant, t.user, t.thread,
    coalesce((SELECT r.agent FROM runs AS r WHERE r.thread = t.id ORDER BY r.id DESC LIMIT 1), t.agent),
    NULL, t.metadata, t.created, t.updated, t.state_seq, t.leased
  FROM threads AS t;

CREATE TABLE runs_2 (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  run TEXT NOT NULL,
  owner_agent TEXT NOT NULL,             -- of its thread
  thread INTEGER NOT NULL,
  agent TEXT NOT NULL,                   -- the agent that produces its events
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
  UNIQUE (tenant, user, run, owner_agent)
) STRICT;
INSERT INTO runs_2
  SELECT r.id, r.tenant, r.user, r.run, t.owner_agent, r.thread, r.agent, r.status, r.cause, r.created, r.started,
    r.updated, r.fence, r.holder, r.address, r.lease_until, r.first_retained, r.next_seq, r.kept
  FROM runs AS r JOIN threads_2 AS t ON t.id = r.thread;

-- The row numbers of deleted threads and runs stay unused.
DELETE FROM sqlite_sequence WHERE name IN ('threads_2', 'runs_2');
INSERT INTO sqlite_sequence (name, seq)
  SELECT name || '_2', seq FROM sqlite_sequence WHERE name IN ('threads', 'runs');
DROP TABLE threads;
DROP TABLE runs;
ALTER TABLE threads_2 RENAME TO threads;
ALTER TABLE runs_2 RENAME TO runs;

CREATE INDEX threads_by_owner ON threads (tenant, user, owner_agent, id);
CREATE INDEX threads_by_agent ON threads (owner_agent);
CREATE INDEX threads_by_age ON threads (updated);
CREATE INDEX runs_by_thread ON runs (thread, id);
CREATE INDEX runs_live ON runs (id) WHERE status IN ('queued', 'running', 'paused');
CREATE INDEX runs_waiting ON runs (id) WHERE status = 'waiting';
CREATE INDEX runs_by_end ON runs (updated)
  WHERE kept <> 'nothing' AND status IN ('waiting', 'finished', 'failed', 'stopped');
