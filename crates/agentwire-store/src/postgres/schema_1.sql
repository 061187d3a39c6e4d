-- Keys are hashes: ids have any length, and an index row has at most 2,700 bytes.
CREATE FUNCTION agentwire.key_of(a text, b text, c text, d text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT sha256(convert_to(octet_length(a) || ':' || a || octet_length(b) || ':' || b || octet_length(c) || ':' || c || d, 'UTF8'))
$$;

-- One row. `min_reader` and `min_writer` are the oldest versions of the code that may read and write this schema.
-- The epoch rises when the server is another one than before, or went back in time.
CREATE TABLE agentwire.meta (
  id int PRIMARY KEY CHECK (id = 1),
  version int NOT NULL,
  min_reader int NOT NULL,
  min_writer int NOT NULL,
  epoch int NOT NULL DEFAULT 0,
  system_id bigint,
  timeline int
);

-- One row per gateway process: its lease covers all runs that it claims.
CREATE TABLE agentwire.replicas (
  holder text PRIMARY KEY,
  lease_until bigint NOT NULL,
  ttl bigint NOT NULL                    -- its lifetime in milliseconds
) WITH (fillfactor = 50);

CREATE TABLE agentwire.threads (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key bytea NOT NULL UNIQUE,             -- of tenant, user, owner_agent and thread
  owner_key bytea NOT NULL,              -- of tenant, user and owner_agent
  name_key bytea NOT NULL,               -- of tenant, user and thread
  tenant text NOT NULL,
  usr text NOT NULL,
  thread text NOT NULL,
  owner_agent text NOT NULL,
  upstream_scope text,                   -- part of its id on the agent's server, if another agent has this id
  metadata text,
  created bigint NOT NULL,
  updated bigint NOT NULL,
  state_seq bigint NOT NULL DEFAULT 0,
  leased bigint                          -- the run that has the thread
);
CREATE INDEX threads_by_owner ON agentwire.threads (owner_key, id);
CREATE INDEX threads_by_name ON agentwire.threads (name_key);
CREATE INDEX threads_by_agent ON agentwire.threads (md5(owner_agent));
CREATE INDEX threads_by_age ON agentwire.threads (updated);

CREATE TABLE agentwire.states (thread bigint PRIMARY KEY, body text NOT NULL);
CREATE TABLE agentwire.messages (thread bigint PRIMARY KEY, body text NOT NULL);

CREATE TABLE agentwire.runs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key bytea NOT NULL UNIQUE,             -- of tenant, user, owner_agent and run
  tenant text NOT NULL,
  usr text NOT NULL,
  run text NOT NULL,
  owner_agent text NOT NULL,             -- of its thread
  thread bigint NOT NULL,
  agent text NOT NULL,                   -- the agent that produces its events
  status text NOT NULL,
  cause text,
  created bigint NOT NULL,
  started bigint,
  updated bigint NOT NULL,
  day date NOT NULL,                     -- the partition of its log: the server's date when it was created
  first_retained bigint NOT NULL DEFAULT 0,
  kept text NOT NULL DEFAULT 'exact'     -- what is kept of the log: exact, compacted, nothing
);
CREATE INDEX runs_by_thread ON agentwire.runs (thread, id);
CREATE INDEX runs_live ON agentwire.runs (id) WHERE status IN ('queued', 'running', 'paused');
CREATE INDEX runs_waiting ON agentwire.runs (id) WHERE status = 'waiting';
CREATE INDEX runs_by_end ON agentwire.runs (updated)
  WHERE kept <> 'nothing' AND status IN ('waiting', 'finished', 'failed', 'stopped');
CREATE INDEX runs_by_day ON agentwire.runs (day) WHERE kept = 'exact';

-- The columns of a run that an append changes, apart from the others so that the row stays small and every update
-- stays within its page.
CREATE TABLE agentwire.heads (
  run bigint PRIMARY KEY,
  fence bigint NOT NULL,
  next_seq bigint NOT NULL DEFAULT 0,
  watched_until bigint,                  -- readers at other replicas want a wake-up until then
  claimed boolean NOT NULL,              -- false once the claim was released or the run has ended
  holder text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX heads_by_holder ON agentwire.heads (holder) WHERE claimed;

CREATE TABLE agentwire.inputs (run bigint PRIMARY KEY, body text NOT NULL);

-- All rows of a run are in the partition of the day on which the run was created, so that the primary key recognises a
-- repeated append and retention can drop whole days.
CREATE TABLE agentwire.log (
  day date NOT NULL,
  run bigint NOT NULL,
  seq bigint NOT NULL,                   -- of the first event in the body
  n int NOT NULL,                        -- the number of events
  fence bigint NOT NULL,
  epoch int NOT NULL,
  body bytea NOT NULL,                   -- each event behind its length: four bytes, little end first
  PRIMARY KEY (day, run, seq)
) PARTITION BY RANGE (day);
CREATE TABLE agentwire.log_other PARTITION OF agentwire.log DEFAULT;
ALTER TABLE agentwire.log ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE agentwire.log_other ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE agentwire.compacted (run bigint PRIMARY KEY, body bytea NOT NULL);

CREATE TABLE agentwire.pending (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  thread bigint NOT NULL,
  run bigint NOT NULL,
  pending text NOT NULL,
  kind text NOT NULL,
  body text NOT NULL,
  created bigint NOT NULL,
  expires bigint,
  answer text,
  answered_by text,
  answered bigint,
  answer_run text
);
CREATE UNIQUE INDEX pending_by_run ON agentwire.pending (run, (agentwire.key_of(pending, '', '', '')));
CREATE INDEX pending_by_thread ON agentwire.pending (thread, id);

CREATE TABLE agentwire.feedback (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  thread bigint NOT NULL,
  run text,
  body text NOT NULL,
  created bigint NOT NULL
);
CREATE INDEX feedback_by_thread ON agentwire.feedback (thread, id);

-- Commands to the holder of a run, and the processes that read a run.
CREATE TABLE agentwire.commands (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run bigint NOT NULL,
  body text NOT NULL,
  deadline bigint NOT NULL,              -- of the take
  taken boolean NOT NULL DEFAULT false,
  reply text
);
CREATE INDEX commands_by_run ON agentwire.commands (run);
CREATE INDEX commands_by_deadline ON agentwire.commands (deadline);

CREATE TABLE agentwire.readers (
  run bigint NOT NULL,
  holder text NOT NULL,
  until bigint NOT NULL,
  PRIMARY KEY (run, holder)
);
