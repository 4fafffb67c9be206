"""One module per format: it recognises the format in a plan and reads the place of every phase."""
