"""``python -m demo.receiver --port N --data FOLDER``"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from demo.receiver.app import Receiver
from demo.receiver.loopback import hold_signals, listen, run_until_told
from demo.receiver.store import SCHEMA, open_store


def main() -> None:
    parser = argparse.ArgumentParser(prog="demo.receiver", description="The demo's outside business system.")
    parser.add_argument("--port", type=int, required=True, help="port of 127.0.0.1; 0 for a free one")
    parser.add_argument("--data", type=Path, required=True, help="folder of its database")
    arguments = parser.parse_args()
    hold_signals()
    stopping = threading.Event()
    store = open_store(arguments.data, "receiver.sqlite3", SCHEMA)
    run_until_told(listen(Receiver(store, stopping), arguments.port, stopping))
    store.close()


if __name__ == "__main__":
    main()
