ALTER TABLE workers
    ADD COLUMN failures INTEGER NOT NULL DEFAULT 0,  -- heartbeats of this worker that did not arrive
    ADD COLUMN latency_s DOUBLE PRECISION NOT NULL DEFAULT 0;  -- of its last heartbeat
