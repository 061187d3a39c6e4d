CREATE TABLE api_keys (
  id TEXT PRIMARY KEY,
  hash BLOB NOT NULL,                    -- keyed hash of the secret
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  permissions TEXT NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER,
  revoked INTEGER,
  last_used INTEGER,
  version INTEGER NOT NULL               -- rises with every change but the last use
) STRICT;
CREATE INDEX api_keys_by_version ON api_keys (version);

-- For the list of open questions of a tenant.
CREATE INDEX pending_open ON pending (kind, id) WHERE answered IS NULL;
