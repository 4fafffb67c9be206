"""A host of a fleet: takes plans from the queue in PostgreSQL and works on them."""
