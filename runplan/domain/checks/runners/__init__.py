"""Readers of test output, by the language of the test runners."""
