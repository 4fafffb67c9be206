#!/bin/sh
# The image of PostgreSQL runs it once, for an empty database: the login of the workers, which owns nothing.
psql -v ON_ERROR_STOP=1 -v password="$WORKER_PASSWORD" -U postgres <<'SQL'
CREATE ROLE runplan_worker NOLOGIN;
CREATE ROLE worker LOGIN PASSWORD :'password' IN ROLE runplan_worker;
SQL
