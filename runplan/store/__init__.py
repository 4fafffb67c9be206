"""Where the journal and the claims are kept."""
