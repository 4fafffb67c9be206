"""runplan as an MCP server: tools that run the command, for the agent that a person talks to."""
