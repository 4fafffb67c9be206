"""The machine: events, state, decisions, and the words for them. Pure."""
