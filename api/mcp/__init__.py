"""A server for MCP clients: tools that call what the routes call, and reports as resources."""
