"""The outside world: git, the store, forges, agents, the sandbox, processes, notices."""
