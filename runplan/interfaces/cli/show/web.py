"""runplan web: the pages for a browser. They need the extra `web`."""

import argparse
import os
import threading

from runplan.app.operations.model import Caller
from runplan.domain.errors import Exit
from runplan.interfaces.cli.terminal import say
from runplan.interfaces.web.app import open_server

ENDING_S = 0.1  #: for a thread to end


def run_web(args: argparse.Namespace) -> None:
    tls = tuple(args.tls) if args.tls else None
    shown = {"is_behind_proxy": args.behind_proxy, "is_read_only": args.read_only}
    with open_server(Caller(), address=args.address, port=args.port, tls=tls, **shown) as server:
        print(server.address, flush=True)
        say("open this address in a browser; it can be used once, within 10 minutes. Ctrl-C ends the server.")
        server.run([server.listener])
        threads = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
        for thread in threads:
            thread.join(ENDING_S)
        if any(thread.is_alive() and not thread.daemon for thread in threads):
            os._exit(Exit.DONE)  # Python would wait for a page that is being read; a command goes on by itself
