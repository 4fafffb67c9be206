ALTER TABLE workers
    ADD COLUMN failures INTEGER NOT NULL DEFAULT 0,  -- heartbeats of this worker that did not arrive
    ADD COLUMN latency_s DOUBLE PRECISION NOT NULL DEFAULT 0;  -- of its last heartbeat

-- Queue a job by the function that Procrastinate documents, unless one with its queueing lock waits already.
CREATE FUNCTION defer_once(job procrastinate_job_to_defer_v1) RETURNS void
    LANGUAGE plpgsql SET search_path = runplan, pg_catalog, pg_temp AS $$
BEGIN
    PERFORM procrastinate_defer_jobs_v1(ARRAY[job]);
EXCEPTION WHEN unique_violation THEN NULL;
END $$;

-- The role of one repository has rights in its schema alone. It sees that repository here, and queues its plans. The
-- function has the rights of the owner, so it looks for no table in a schema that others can write to.
ALTER TABLE repositories ENABLE ROW LEVEL SECURITY;
CREATE POLICY with_rights ON repositories USING (has_schema_privilege(schema, 'USAGE'));
CREATE OR REPLACE FUNCTION queue_plan(schema TEXT, plan TEXT, queue TEXT) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = runplan, pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_schema_privilege(session_user, schema, 'USAGE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'permission denied for schema ' || schema;
    END IF;
    DELETE FROM procrastinate_jobs
        WHERE queueing_lock = schema || ' ' || plan AND status = 'todo' AND queue_name NOT IN ('any', queue);
    PERFORM defer_once(ROW(queue, 'runplan.work', 0, schema || ' ' || plan, schema || ' ' || plan,
        jsonb_build_object('schema', schema, 'plan', plan), NULL));
END $$;
CREATE OR REPLACE FUNCTION wake_plan_at(schema TEXT, plan TEXT, at TIMESTAMPTZ) RETURNS void
    LANGUAGE sql SET search_path = runplan, pg_catalog AS $$
    SELECT defer_once(ROW('any', 'runplan.wake', 0, NULL, schema || ' ' || plan || ' ' || extract(epoch FROM at),
        jsonb_build_object('schema', schema, 'plan', plan), at))
$$;
