-- A start of which nothing stands in the way, in one round trip. Returns a null id, and has changed nothing, if something does:
-- the run exists, the thread is not free, the holder has no live lease, the timeline is another one.
CREATE FUNCTION agentwire.start_run(
  of_tenant text, of_usr text, of_agent text, of_run text, of_thread text, by_agent text, new_thread_ids text,
  of_cause text, of_holder text, of_input text, of_epoch bigint, known_timeline bigint, given_now bigint,
  OUT id bigint, OUT fence bigint, OUT now bigint, OUT scope text, OUT thread_ids text, OUT day date)
LANGUAGE plpgsql AS $$
DECLARE
  thread_id bigint;
  has_thread bigint;
  run_key bytea := agentwire.key_of(of_tenant, of_usr, of_agent, of_run);
BEGIN
  IF known_timeline IS NOT NULL
    AND known_timeline <> ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int THEN
    RETURN;
  END IF;
  SELECT t.id, t.leased, t.upstream_scope, t.thread_ids INTO thread_id, has_thread, scope, thread_ids FROM agentwire.threads AS t
    WHERE t.key = agentwire.key_of(of_tenant, of_usr, of_agent, of_thread) FOR UPDATE;
  now := coalesce(given_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  IF has_thread IS NOT NULL
    OR NOT EXISTS (SELECT 1 FROM agentwire.replicas AS p WHERE p.holder = of_holder AND p.lease_until > now)
    OR EXISTS (SELECT 1 FROM agentwire.runs AS r WHERE r.key = run_key)
    OR EXISTS (SELECT 1 FROM agentwire.runs AS r WHERE r.thread = thread_id AND r.status = 'queued') THEN
    RETURN;
  END IF;
  IF thread_id IS NULL THEN
    -- Two agents may create a thread with this id at once; one of them gets the upstream scope.
    PERFORM pg_advisory_xact_lock(hashtextextended(of_tenant || ' ' || of_usr || ' ' || of_thread, 0));
    IF EXISTS (SELECT 1 FROM agentwire.threads AS t WHERE t.name_key = agentwire.key_of(of_tenant, of_usr, of_thread, '')) THEN
      scope := of_agent;
    END IF;
    thread_ids := new_thread_ids;
    INSERT INTO agentwire.threads AS t (key, owner_key, name_key, tenant, usr, owner_agent, thread, upstream_scope, thread_ids,
        created, updated)
      VALUES (agentwire.key_of(of_tenant, of_usr, of_agent, of_thread), agentwire.key_of(of_tenant, of_usr, of_agent, ''),
        agentwire.key_of(of_tenant, of_usr, of_thread, ''), of_tenant, of_usr, of_agent, of_thread, scope, thread_ids, now, now)
      ON CONFLICT (key) DO NOTHING RETURNING t.id INTO thread_id;
    IF thread_id IS NULL THEN
      -- Another process has just made it.
      RETURN;
    END IF;
  END IF;
  day := (to_timestamp(now / 1000.0) AT TIME ZONE 'UTC')::date;
  INSERT INTO agentwire.runs AS r (key, tenant, usr, owner_agent, run, thread, agent, status, cause, created, started, updated, day)
    VALUES (run_key, of_tenant, of_usr, of_agent, of_run, thread_id, by_agent, 'running', of_cause, now, now, now, day)
    RETURNING r.id INTO id;
  fence := (of_epoch << 52) + (id << 16);
  INSERT INTO agentwire.heads (run, fence, claimed, holder) VALUES (id, start_run.fence, true, of_holder);
  INSERT INTO agentwire.inputs (run, body) VALUES (id, of_input);
  UPDATE agentwire.threads AS t SET updated = now, leased = start_run.id WHERE t.id = thread_id;
END $$;

-- The thread for a queued run of which nothing stands in the way, in one round trip. Returns a null fence, and has changed
-- nothing, if something does.
CREATE FUNCTION agentwire.acquire_run(
  of_tenant text, of_usr text, of_agent text, of_run text, old_fence bigint, of_epoch bigint, known_timeline bigint, given_now bigint,
  OUT fence bigint, OUT holder text, OUT thread text)
LANGUAGE plpgsql AS $$
DECLARE
  now bigint;
  run_id bigint;
  thread_id bigint;
  has_thread bigint;
  is_granted boolean;
BEGIN
  IF known_timeline IS NOT NULL
    AND known_timeline <> ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int THEN
    RETURN;
  END IF;
  SELECT r.id, r.thread INTO run_id, thread_id FROM agentwire.runs AS r
    WHERE r.key = agentwire.key_of(of_tenant, of_usr, of_agent, of_run);
  SELECT t.leased, t.thread INTO has_thread, thread FROM agentwire.threads AS t WHERE t.id = thread_id FOR UPDATE;
  PERFORM 1 FROM agentwire.heads AS h WHERE h.run = run_id FOR UPDATE;
  now := coalesce(given_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  SELECT h.holder, r.status = 'queued' AND h.fence = old_fence AND h.claimed AND has_thread IS NULL
      AND EXISTS (SELECT 1 FROM agentwire.replicas AS p WHERE p.holder = h.holder AND p.lease_until > now)
      AND NOT EXISTS (SELECT 1 FROM agentwire.runs AS o WHERE o.thread = thread_id AND o.id < run_id AND o.status = 'queued')
    INTO holder, is_granted
    FROM agentwire.runs AS r JOIN agentwire.heads AS h ON h.run = r.id WHERE r.id = run_id;
  IF is_granted IS NOT TRUE THEN
    RETURN;
  END IF;
  fence := greatest(old_fence + 1, (of_epoch << 52) + (run_id << 16));
  UPDATE agentwire.heads AS h SET fence = acquire_run.fence WHERE h.run = run_id;
  UPDATE agentwire.runs AS r SET status = 'running', started = now, updated = now WHERE r.id = run_id;
  UPDATE agentwire.threads AS t SET leased = run_id, updated = now WHERE t.id = thread_id;
END $$;
