"""What calls the daemon back at a moment; one module per way."""
