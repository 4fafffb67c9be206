"""One small module per kind of agent."""
