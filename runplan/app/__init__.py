"""What runplan can do and show."""
