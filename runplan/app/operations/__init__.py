"""What runplan can do: one function for each thing that changes something."""
