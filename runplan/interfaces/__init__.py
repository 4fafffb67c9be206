"""The command line, the page and the MCP server: they parse or route, call the application, and render."""
