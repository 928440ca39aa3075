"""localstripe on one free port of this machine only, printing where; by itself it listens to every address."""

from __future__ import annotations

import socket
import sys

from aiohttp import web
from localstripe.resources import store
from localstripe.server import app


def main() -> None:
    # It would write all it has to one place of the machine after each request.
    store.dump_to_disk = lambda: None
    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"ready http://127.0.0.1:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    web.run_app(app, sock=listening, print=None, access_log=None)


if __name__ == "__main__":
    main()
