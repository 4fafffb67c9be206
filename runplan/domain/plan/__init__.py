"""Plans: read from Markdown, understood, and written back. Pure."""
