CREATE TABLE agentwire.api_keys (
  id text PRIMARY KEY,
  hash bytea NOT NULL,                   -- keyed hash of the secret
  tenant text NOT NULL,
  usr text NOT NULL,
  permissions text NOT NULL,
  created bigint NOT NULL,
  expires bigint,
  revoked bigint,
  last_used bigint,
  version bigint NOT NULL                -- rises with every change but the last use
);
CREATE INDEX api_keys_by_version ON agentwire.api_keys (version);

-- For the list of open questions of a tenant.
CREATE INDEX pending_open ON agentwire.pending (md5(kind), id) WHERE answered IS NULL;

-- For quotas.
CREATE INDEX threads_by_tenant ON agentwire.threads (md5(tenant), md5(usr));
