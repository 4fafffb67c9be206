"""Settings and options: declared once, read from files, environment and words."""
