"""The processes that carry out runs: the daemon and the workers of a fleet."""
