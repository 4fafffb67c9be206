"""A stand-in GitLab: its state and rules, and the server for them."""
