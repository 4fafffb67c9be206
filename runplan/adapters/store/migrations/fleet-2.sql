ALTER TABLE workers
    ADD COLUMN failures INTEGER NOT NULL DEFAULT 0,  -- heartbeats of this worker that did not arrive
    ADD COLUMN latency_s DOUBLE PRECISION NOT NULL DEFAULT 0;  -- of its last heartbeat

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
    INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
    VALUES (queue, 'runplan.work', schema || ' ' || plan, schema || ' ' || plan,
        jsonb_build_object('schema', schema, 'plan', plan))
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING;
END $$;
