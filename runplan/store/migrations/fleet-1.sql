-- Of all repositories. The owner of the database applies it: runplan fleet init
-- Each new table gives runplan_worker all rights on its rows, but for those that are revoked here.

CREATE TABLE version (version INTEGER NOT NULL);
INSERT INTO version VALUES (1);
CREATE TABLE queue (version TEXT NOT NULL);  -- of Procrastinate's tables
CREATE TABLE repositories (url TEXT PRIMARY KEY, schema TEXT NOT NULL UNIQUE, remote TEXT NOT NULL);
REVOKE INSERT, UPDATE, DELETE ON version, queue, repositories FROM runplan_worker;
CREATE TABLE workers (
    owner TEXT PRIMARY KEY, host TEXT NOT NULL, labels TEXT[] NOT NULL, slots INTEGER NOT NULL,
    version TEXT NOT NULL, started TIMESTAMPTZ NOT NULL DEFAULT now(), seen TIMESTAMPTZ NOT NULL DEFAULT now(),
    draining BOOLEAN NOT NULL DEFAULT false
);
-- The newest usage limit of each account of agents.
CREATE TABLE limits (account TEXT PRIMARY KEY, until TEXT NOT NULL, words TEXT NOT NULL, at TEXT NOT NULL);
-- A worker that was not seen for so long counts as dead. It is seen six times in this time.
CREATE FUNCTION lease() RETURNS INTERVAL LANGUAGE sql STABLE RETURN INTERVAL '30 s';
-- As SQLite has it; every value is returned as text.
CREATE FUNCTION json_extract(body TEXT, path TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN body::jsonb #>> string_to_array(substr(path, 3), '.');

-- The tables of Procrastinate are in this schema. Its triggers name them without it. A command for a plan that is
-- queued for hosts with some labels is executed by any host.
CREATE FUNCTION queue_plan(schema TEXT, plan TEXT, queue TEXT) RETURNS void
    LANGUAGE sql SET search_path = runplan, pg_catalog AS $$
    INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
    VALUES (queue, 'runplan.work', schema || ' ' || plan, schema || ' ' || plan,
        jsonb_build_object('schema', schema, 'plan', plan))
    ON CONFLICT (queueing_lock) WHERE status = 'todo'
        DO UPDATE SET queue_name = excluded.queue_name WHERE excluded.queue_name = 'any'
$$;
-- No lock: an earlier job with a lock holds up later ones with the same lock, also before its time.
CREATE FUNCTION wake_plan_at(schema TEXT, plan TEXT, at TIMESTAMPTZ) RETURNS void
    LANGUAGE sql SET search_path = runplan, pg_catalog AS $$
    INSERT INTO procrastinate_jobs (queue_name, task_name, queueing_lock, args, scheduled_at)
    VALUES ('any', 'runplan.wake', schema || ' ' || plan || ' ' || extract(epoch FROM at),
        jsonb_build_object('schema', schema, 'plan', plan), at)
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING
$$;
-- The events of one kind from a moment on, of all repositories.
CREATE FUNCTION list_events(kind TEXT, since TEXT)
    RETURNS TABLE (seq BIGINT, run TEXT, at TEXT, type TEXT, body TEXT) LANGUAGE plpgsql STABLE AS $$
DECLARE
    repository TEXT;
BEGIN
    FOR repository IN SELECT repositories.schema FROM runplan.repositories LOOP
        RETURN QUERY EXECUTE format(
            'SELECT seq, run, at, type, body FROM %I.events WHERE type=$1 AND at>=$2 ORDER BY seq', repository
        ) USING kind, since;
    END LOOP;
END $$;
-- Queue the plans of jobs again, and delete the jobs: a worker that wakes up late ends a job that is gone.
CREATE FUNCTION requeue_jobs(ids BIGINT[]) RETURNS void
    LANGUAGE sql SET search_path = runplan, pg_catalog AS $$
    SELECT queue_plan(args->>'schema', args->>'plan', queue_name) FROM procrastinate_jobs
        WHERE id = ANY(ids) AND args ? 'plan';
    DELETE FROM procrastinate_jobs WHERE id = ANY(ids)
$$;
-- Queue the plans of dead workers: those of their jobs, and those that they own without a job.
CREATE FUNCTION recover_plans() RETURNS void
    LANGUAGE plpgsql SET search_path = runplan, pg_catalog AS $$
DECLARE
    repository TEXT;
    plan TEXT;
BEGIN
    PERFORM requeue_jobs(ARRAY(
        SELECT job.id FROM procrastinate_jobs AS job LEFT JOIN procrastinate_workers AS worker ON worker.id = worker_id
        WHERE status = 'doing' AND (last_heartbeat IS NULL OR last_heartbeat < now() - lease())
        FOR UPDATE OF job SKIP LOCKED));
    FOR repository IN SELECT schema FROM repositories LOOP
        FOR plan IN EXECUTE format('SELECT key FROM %I.claims LEFT JOIN workers USING (owner)'
            ' WHERE kind = ''plan'' AND (seen IS NULL OR seen < now() - lease())', repository)
        LOOP
            PERFORM queue_plan(repository, plan, 'any') WHERE NOT EXISTS (SELECT FROM procrastinate_jobs
                WHERE lock = repository || ' ' || plan AND status IN ('todo', 'doing'));
        END LOOP;
    END LOOP;
END
$$;
