"""The journal, the claims, the commands and the schedules of a repository."""
