"""Where settings and state lie, and reading the settings."""
