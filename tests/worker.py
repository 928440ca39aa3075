"""A worker for tests: Celery as the product runs it, in one process, so that killing it kills the worker itself."""

from __future__ import annotations

import os


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
    import django

    django.setup()
    work()


def work() -> None:
    from console.celery import app, worker_queues

    app.worker_main(
        [
            "worker",
            *("--pool", "threads", "--concurrency", "8", "--loglevel", "info"),
            *("--hostname", f"test-{os.getpid()}@%h", "--without-gossip", "--without-mingle"),
            *("--queues", ",".join(worker_queues())),
        ]
    )


if __name__ == "__main__":
    main()
