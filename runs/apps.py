from __future__ import annotations

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"

    def ready(self) -> None:
        """The ledger asks us which runs are live replays or branches; models can be imported from now on only."""
        from effects import fresh
        from runs.selectors import fresh_runs

        fresh.told_by(fresh_runs)
