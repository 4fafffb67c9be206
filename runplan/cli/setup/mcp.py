"""runplan mcp: the MCP server. The module is imported by its verb alone, because the SDK is slow to import."""

from __future__ import annotations

import argparse

from runplan.errors import RefusedEarly

try:
    from runplan.mcp.server import serve
except ModuleNotFoundError as error:
    if (error.name or "").startswith("runplan"):
        raise
    raise RefusedEarly(f"mcp needs the module {error.name}; install it: pip install 'runplan[mcp]'") from None


def run_mcp(_args: argparse.Namespace) -> None:
    serve()
