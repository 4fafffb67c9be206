"""What the modules of the agents share."""
