"""The rules of each kind of work: what follows from its state."""
