"""``python -m demo.mail_catcher --smtp-port N --http-port M --data FOLDER``"""

from __future__ import annotations

import argparse
import logging
import threading
from pathlib import Path

from demo.mail_catcher import smtp
from demo.mail_catcher.app import MailCatcher
from demo.mail_catcher.faults import Faults
from demo.mail_catcher.mailbox import SCHEMA
from demo.receiver.loopback import hold_signals, listen, run_until_told
from demo.receiver.store import open_store


def main() -> None:
    parser = argparse.ArgumentParser(prog="demo.mail_catcher", description="The demo's mail catcher.")
    parser.add_argument(
        "--smtp-port", type=int, required=True, help="SMTP port of 127.0.0.1; 0 for a free one"
    )
    parser.add_argument(
        "--http-port", type=int, required=True, help="HTTP port of 127.0.0.1; 0 for a free one"
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of its database")
    arguments = parser.parse_args()
    logging.getLogger("mail.log").setLevel(logging.CRITICAL)  # aiosmtpd's own; what came is in the records
    hold_signals()
    stopping = threading.Event()
    store = open_store(arguments.data, "mail.sqlite3", SCHEMA)
    faults = Faults()
    smtp_port = smtp.start(smtp.Catcher(store, faults), arguments.smtp_port)
    run_until_told(listen(MailCatcher(store, faults, smtp_port), arguments.http_port, stopping))
    store.close()


if __name__ == "__main__":
    main()
