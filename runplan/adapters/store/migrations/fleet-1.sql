-- Of all repositories. The owner of the database applies it: runplan fleet init
-- Each new table gives runplan_worker all rights on its rows, but for those that are revoked here.

CREATE TABLE version (version INTEGER NOT NULL);
INSERT INTO version VALUES (1);
CREATE TABLE queue (version TEXT NOT NULL);  -- of Procrastinate's tables
CREATE TABLE repositories (url TEXT PRIMARY KEY, schema TEXT NOT NULL UNIQUE, remote TEXT NOT NULL);
-- The events, the claims and the commands of all repositories, whose tables inherit from these.
-- The columns are the first ones there, in the same order: pg_dump writes inherited columns first.
CREATE TABLE all_events (seq BIGINT, run TEXT, plan TEXT, at TEXT, type TEXT, body TEXT);
CREATE TABLE all_claims (kind TEXT, key TEXT, run TEXT, owner TEXT);
CREATE TABLE all_commands (
    seq BIGINT, plan TEXT, verb TEXT, arguments TEXT, by TEXT, at TEXT, answer TEXT
);
CREATE VIEW claimed AS
    SELECT relnamespace::regnamespace::text AS schema, key AS plan, run, owner
    FROM all_claims JOIN pg_class ON oid = all_claims.tableoid WHERE kind = 'plan';
CREATE VIEW commanded AS
    SELECT DISTINCT relnamespace::regnamespace::text AS schema, plan
    FROM all_commands JOIN pg_class ON oid = all_commands.tableoid WHERE answer IS NULL;
REVOKE INSERT, UPDATE, DELETE ON version, queue, repositories, all_events, all_claims, all_commands
    FROM runplan_worker;
CREATE TABLE workers (
    owner TEXT PRIMARY KEY, host TEXT NOT NULL, labels TEXT[] NOT NULL, slots INTEGER NOT NULL,
    version TEXT NOT NULL, started TIMESTAMPTZ NOT NULL DEFAULT now(), seen TIMESTAMPTZ NOT NULL DEFAULT now(),
    machine TEXT NOT NULL DEFAULT '',  -- each state directory has its own: two machines may have one name
    draining BOOLEAN NOT NULL DEFAULT false,
    sick TEXT NOT NULL DEFAULT '',  -- why the machine takes no plans, by its own check
    free BIGINT NOT NULL DEFAULT 0  -- bytes on the disk of its state directory
);
-- A worker that was not seen for so long counts as dead. It is seen six times in this time.
CREATE FUNCTION lease() RETURNS INTERVAL LANGUAGE sql STABLE RETURN INTERVAL '30 s';
-- Since when heartbeats arrive without a gap. After one every host seems dead, and has the time of a lease to be seen.
CREATE TABLE steady (since TIMESTAMPTZ NOT NULL);
INSERT INTO steady VALUES (now());
CREATE FUNCTION note_gap() RETURNS trigger LANGUAGE plpgsql SET search_path = runplan, pg_catalog AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM workers WHERE seen > now() - lease() / 2) THEN UPDATE steady SET since = now(); END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER note_gap BEFORE INSERT OR UPDATE OF seen ON workers FOR EACH ROW EXECUTE FUNCTION note_gap();
-- As SQLite has it; every value is returned as text.
CREATE FUNCTION json_extract(body TEXT, path TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN body::jsonb #>> string_to_array(substr(path, 3), '.');

-- The tables of Procrastinate are in this schema. Its triggers name them without it. A command for a plan that is
-- queued for hosts with some labels is executed by any host. The job is made anew, since only that is notified.
CREATE FUNCTION queue_plan(schema TEXT, plan TEXT, queue TEXT) RETURNS void
    LANGUAGE sql SET search_path = runplan, pg_catalog AS $$
    DELETE FROM procrastinate_jobs
        WHERE queueing_lock = schema || ' ' || plan AND status = 'todo' AND queue_name NOT IN ('any', queue);
    INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
    VALUES (queue, 'runplan.work', schema || ' ' || plan, schema || ' ' || plan,
        jsonb_build_object('schema', schema, 'plan', plan))
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING
$$;
-- No lock: an earlier job with a lock holds up later ones with the same lock, also before its time.
CREATE FUNCTION wake_plan_at(schema TEXT, plan TEXT, at TIMESTAMPTZ) RETURNS void
    LANGUAGE sql SET search_path = runplan, pg_catalog AS $$
    INSERT INTO procrastinate_jobs (queue_name, task_name, queueing_lock, args, scheduled_at)
    VALUES ('any', 'runplan.wake', schema || ' ' || plan || ' ' || extract(epoch FROM at),
        jsonb_build_object('schema', schema, 'plan', plan), at)
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING
$$;
-- Queue the plans of jobs again, and delete the jobs: a worker that wakes up late ends a job that is gone. Any host
-- looks at them: the phase in hand may need other labels than the one for which the job was queued.
CREATE FUNCTION requeue_jobs(ids BIGINT[]) RETURNS void
    LANGUAGE sql SET search_path = runplan, pg_catalog AS $$
    SELECT queue_plan(args->>'schema', args->>'plan', 'any') FROM procrastinate_jobs
        WHERE id = ANY(ids) AND args ? 'plan';
    DELETE FROM procrastinate_jobs WHERE id = ANY(ids)
$$;

-- How many runs work at once, over the fleet (0: no limit) and in one repository.
CREATE TABLE capacity (fleet INTEGER NOT NULL, repository INTEGER NOT NULL);
INSERT INTO capacity VALUES (0, 3);
-- The runs that work, and those that wait for their turn. A row ends with the claim of the plan, unless its run waits.
CREATE TABLE permits (
    number BIGINT GENERATED ALWAYS AS IDENTITY, schema TEXT NOT NULL, plan TEXT NOT NULL, owner TEXT NOT NULL,
    works BOOLEAN NOT NULL DEFAULT false, PRIMARY KEY (schema, plan)
);
CREATE VIEW working AS
    SELECT schema, plan, owner FROM permits JOIN workers USING (owner) WHERE works AND seen > now() - lease();
-- The runs that may begin now, first come, first served. A full repository does not hold up the others.
CREATE VIEW fitting AS
    WITH waiting AS (
        SELECT number, schema, plan, row_number() OVER (PARTITION BY schema ORDER BY number)
            + (SELECT count(*) FROM working WHERE working.schema = permits.schema) AS place
        FROM permits WHERE NOT works
    ), turns AS (
        SELECT schema, plan, row_number() OVER (ORDER BY number) + (SELECT count(*) FROM working) AS place
        FROM waiting WHERE place <= (SELECT repository FROM capacity)
    )
    SELECT schema, plan FROM turns, capacity WHERE fleet = 0 OR place <= fleet;
-- Whether the run may work now; if not, it is queued. A run whose process is running already is counted in any case.
CREATE FUNCTION request_permit(repository TEXT, name TEXT, asker TEXT, runs BOOLEAN) RETURNS BOOLEAN
    LANGUAGE plpgsql SET search_path = runplan, pg_catalog AS $$
BEGIN
    IF EXISTS (SELECT FROM working WHERE (schema, plan, owner) = (repository, name, asker)) THEN RETURN true; END IF;
    PERFORM pg_advisory_xact_lock(hashtext('permits'));
    INSERT INTO permits (schema, plan, owner) VALUES (repository, name, asker)
        ON CONFLICT (schema, plan) DO UPDATE SET works = (repository, name) IN (SELECT schema, plan FROM working);
    runs := runs OR (repository, name) IN (SELECT schema, plan FROM working UNION SELECT * FROM fitting);
    UPDATE permits SET owner = asker, works = runs WHERE schema = repository AND plan = name;
    RETURN runs;
END $$;
CREATE FUNCTION queue_fitting() RETURNS trigger LANGUAGE plpgsql SET search_path = runplan, pg_catalog AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('permits'));
    PERFORM queue_plan(schema, plan, 'any') FROM fitting;
    RETURN NULL;
END $$;
CREATE TRIGGER queue_fitting AFTER DELETE ON permits FOR EACH ROW EXECUTE FUNCTION queue_fitting();
CREATE TRIGGER queue_fitting AFTER UPDATE ON capacity FOR EACH ROW EXECUTE FUNCTION queue_fitting();

-- Queue the plans of dead workers, of their jobs and their claims, those that may begin since their permits end, and
-- those with a command that a worker missed when it left the plan.
CREATE FUNCTION recover_plans() RETURNS void
    LANGUAGE sql SET search_path = runplan, pg_catalog AS $$
    SELECT queue_plan(schema, plan, 'any') FROM fitting;
    SELECT queue_plan(schema, plan, 'any')
        FROM (TABLE commanded UNION SELECT schema, plan FROM claimed) AS plans
        LEFT JOIN claimed USING (schema, plan) LEFT JOIN workers USING (owner)
        WHERE (seen IS NULL OR seen < now() - lease()) AND NOT EXISTS (
            SELECT FROM procrastinate_jobs WHERE lock = schema || ' ' || plan AND status IN ('todo', 'doing'));
    SELECT requeue_jobs(ARRAY(
        SELECT job.id FROM procrastinate_jobs AS job LEFT JOIN procrastinate_workers AS worker ON worker.id = worker_id
        WHERE status = 'doing' AND (last_heartbeat IS NULL OR last_heartbeat < now() - lease())
        FOR UPDATE OF job SKIP LOCKED));
    DELETE FROM workers WHERE seen < now() - INTERVAL '7 days' AND NOT draining
$$;
