"""The command line: parses words, prints facts. No decisions."""
