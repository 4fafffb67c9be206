"""Supervises processes that outlive the daemon."""
