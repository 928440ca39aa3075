"""A worker for tests: Celery as the product runs it, in one process, so that killing it kills the worker itself."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
    import django

    django.setup()
    work()


def work() -> None:
    from console.celery import REPLAYER, app, worker_queues

    replayer = "--replayer" in sys.argv
    pool: tuple[str, ...] = ("threads", "--concurrency", "8")
    if replayer:
        os.environ[REPLAYER] = "1"
        pool = ("solo",)
    app.worker_main(
        [
            "worker",
            *("--pool", *pool, "--loglevel", "info"),
            *("--hostname", f"test-{os.getpid()}@%h", "--without-gossip", "--without-mingle"),
            *("--queues", ",".join(worker_queues(replayer=replayer))),
        ]
    )


if __name__ == "__main__":
    main()
