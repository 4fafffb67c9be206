"""runplan mcp: the MCP server. The module is imported by its verb alone, because the SDK is slow to import."""

from __future__ import annotations

import argparse

from runplan.interfaces.mcp.server import serve


def run_mcp(_args: argparse.Namespace) -> None:
    serve()
