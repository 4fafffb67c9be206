"""Pages for a browser: they show the views of all repositories, and run commands as the terminal does."""
