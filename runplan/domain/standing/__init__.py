"""How a plan stands: the states of its phases, what its agents used, and what a person can do next."""
