"""What looks after an installation."""
