"""Commands that start, stop and answer runs."""
