"""What agent modules share."""
