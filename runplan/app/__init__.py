"""The loop, its actions, and the views of what it recorded."""
