-- The claim of an orphan, in one round trip: the columns of the run as it is afterwards. Returns no row, and has changed nothing, if
-- the run may not be taken over: it has ended, its holder is live, its fencing token is another one, the new holder has no live lease,
-- the timeline is another one.
CREATE OR REPLACE FUNCTION agentwire.take_over_run(
  of_tenant text, of_usr text, of_agent text, of_run text, seen_fence bigint, by_holder text, of_epoch bigint, known_timeline bigint,
  server_started bigint, given_now bigint)
RETURNS TABLE (
  id bigint, thread_id bigint, leased bigint, run text, thread text, agent text, status text, cause text, created bigint,
  started bigint, updated bigint, first_retained bigint, next_seq bigint, kept text, fence bigint, holder text, upstream_scope text,
  claimed boolean, lease_until bigint, day date, ttl bigint, thread_ids text, state_seq bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  now_millis bigint;
  run_id bigint;
  of_thread bigint;
  run_key bytea := agentwire.key_of(of_tenant, of_usr, of_agent, of_run);
  is_free boolean;
BEGIN
  IF known_timeline IS NOT NULL
    AND known_timeline <> ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int THEN
    RETURN;
  END IF;
  SELECT r.id, r.thread INTO run_id, of_thread FROM agentwire.runs AS r WHERE r.key = run_key;
  PERFORM 1 FROM agentwire.threads AS t WHERE t.id = of_thread FOR UPDATE;
  PERFORM 1 FROM agentwire.heads AS h WHERE h.run = run_id FOR UPDATE;
  now_millis := coalesce(given_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  -- After a start of the server, leases count as live for their lifetime.
  SELECT r.status IN ('queued', 'running', 'paused') AND h.fence = seen_fence
      AND (h.holder = by_holder OR NOT h.claimed OR p.lease_until IS NULL
        OR greatest(p.lease_until, coalesce(server_started + p.ttl, p.lease_until)) <= now_millis)
      AND EXISTS (SELECT 1 FROM agentwire.replicas AS o WHERE o.holder = by_holder AND o.lease_until > now_millis)
    INTO is_free
    FROM agentwire.runs AS r JOIN agentwire.heads AS h ON h.run = r.id
      LEFT JOIN agentwire.replicas AS p ON p.holder = h.holder
    WHERE r.id = run_id AND r.key = run_key;
  IF is_free IS NOT TRUE THEN
    RETURN;
  END IF;
  UPDATE agentwire.threads AS t SET leased = run_id FROM agentwire.runs AS r
    WHERE t.id = of_thread AND t.leased IS NULL AND r.id = run_id AND r.status <> 'queued';
  -- A command that the previous holder had taken can be taken for ten more seconds: its sender waits for the result.
  UPDATE agentwire.commands AS c SET taken = false, deadline = greatest(c.deadline, now_millis + 10000)
    WHERE c.run = run_id AND c.reply IS NULL AND c.taken;
  UPDATE agentwire.heads AS h SET fence = greatest(h.fence + 1, (of_epoch << 52) + (run_id << 16)), holder = by_holder, claimed = true
    WHERE h.run = run_id;
  RETURN QUERY SELECT r.id, r.thread, t.leased, r.run, t.thread, r.agent, r.status, r.cause, r.created, r.started, r.updated,
      r.first_retained, h.next_seq, r.kept, h.fence, h.holder, t.upstream_scope, h.claimed, p.lease_until, r.day, p.ttl,
      t.thread_ids, t.state_seq
    FROM agentwire.runs AS r JOIN agentwire.threads AS t ON t.id = r.thread
      JOIN agentwire.heads AS h ON h.run = r.id LEFT JOIN agentwire.replicas AS p ON p.holder = h.holder
    WHERE r.id = run_id;
END $$;
