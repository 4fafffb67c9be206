"""The world: one room per outside thing."""
