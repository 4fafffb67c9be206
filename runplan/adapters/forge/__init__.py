"""Forges: pull requests, their checks, and issues. One module per forge."""
