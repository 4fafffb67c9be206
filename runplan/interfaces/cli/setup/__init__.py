"""Commands that set up a repository, the daemon and this machine."""
