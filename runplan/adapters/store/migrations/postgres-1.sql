-- Of one repository, in its own schema, after repository-1.sql.

ALTER TABLE events INHERIT runplan.all_events;
ALTER TABLE claims INHERIT runplan.all_claims;
ALTER TABLE commands INHERIT runplan.all_commands;
CREATE FUNCTION release_permit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM runplan.permits WHERE schema = TG_TABLE_SCHEMA AND permits.plan = OLD.key
        AND NOT EXISTS (SELECT FROM runs WHERE runs.plan = OLD.key AND state = 'queued');
    RETURN NULL;
END $$;
CREATE TRIGGER release_permit AFTER DELETE ON claims FOR EACH ROW EXECUTE FUNCTION release_permit();
-- Parts of the files of dispatches, and where they start. `place` names the host and the path of the whole file.
CREATE TABLE outputs (
    dispatch TEXT NOT NULL, name TEXT NOT NULL, start BIGINT NOT NULL, content BYTEA NOT NULL, place TEXT NOT NULL,
    written TIMESTAMPTZ NOT NULL DEFAULT now(), PRIMARY KEY (dispatch, name, start)
);
-- Clients that wait for an answer, or follow a run, are told of each change.
CREATE FUNCTION tell_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('runplan_changes', TG_TABLE_SCHEMA);
    RETURN NULL;
END $$;
CREATE TRIGGER tell_change AFTER UPDATE ON commands FOR EACH STATEMENT EXECUTE FUNCTION tell_change();
CREATE TRIGGER tell_change AFTER INSERT OR UPDATE ON runs FOR EACH STATEMENT EXECUTE FUNCTION tell_change();
CREATE TRIGGER tell_change AFTER INSERT ON outputs FOR EACH STATEMENT EXECUTE FUNCTION tell_change();
-- Workers and clients only append events, and they keep what shows who worked and what was answered.
REVOKE UPDATE, DELETE ON events, notices FROM runplan_worker;
REVOKE DELETE ON runs, fences, baselines, firings, outlines FROM runplan_worker;
