"""Set-up and maintenance of an installation."""
