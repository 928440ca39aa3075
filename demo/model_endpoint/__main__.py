"""``python -m demo.model_endpoint --port N``"""

from __future__ import annotations

import argparse
import threading

from demo.model_endpoint.app import ModelEndpoint
from demo.receiver.loopback import hold_signals, listen, run_until_told


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="demo.model_endpoint", description="The demo's scripted model endpoint."
    )
    parser.add_argument("--port", type=int, required=True, help="port of 127.0.0.1; 0 for a free one")
    arguments = parser.parse_args()
    hold_signals()
    stopping = threading.Event()
    run_until_told(listen(ModelEndpoint(stopping), arguments.port, stopping))


if __name__ == "__main__":
    main()
