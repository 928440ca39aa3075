"""The slow workflow with a step deadline that its node overruns."""

from __future__ import annotations

from dataclasses import replace

from tests.workflows import slow

workflow = replace(slow.workflow, name="test_overrun", step_seconds=2)
