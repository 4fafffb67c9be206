"""runplan web: the pages for a browser. They need the extra `web`."""

import argparse

from runplan.app.operations.model import Caller
from runplan.interfaces.cli.terminal import say
from runplan.interfaces.web.app import open_server


def run_web(args: argparse.Namespace) -> None:
    tls = tuple(args.tls) if args.tls else None
    shown = {"is_behind_proxy": args.behind_proxy, "is_read_only": args.read_only}
    with open_server(Caller(), address=args.address, port=args.port, tls=tls, **shown) as server:
        print(server.address, flush=True)
        say("open this address in a browser; it can be used once, within 10 minutes. Ctrl-C ends the server.")
        server.run_until_signal()
