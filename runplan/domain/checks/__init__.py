"""Judges work: test results, verdicts, tampering, secrets. Pure."""
