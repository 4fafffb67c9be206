"""The user's daemon: its process, its socket, and the workers of its repositories."""
