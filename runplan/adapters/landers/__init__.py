"""The ways a candidate reaches the target; one module each."""
