"""Shells around executions: fetch, call. The row decides everything."""

from __future__ import annotations

import logging

from celery import shared_task

from runs import apart, execution, waiting

logger = logging.getLogger(__name__)


@shared_task(name=waiting.TASK, ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no types
def advance(run_id: str) -> None:
    """One visit to a run. A message that comes late, twice, or for a finished run does nothing."""
    execute = apart.execute_in_child if execution.this_process().apart else execution.execute
    logger.info("run %s: %s", run_id, execute(run_id))
