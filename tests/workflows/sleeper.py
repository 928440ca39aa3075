"""The slow workflow under a name that no worker of the stack holds: the tests start and stop its workers."""

from __future__ import annotations

from dataclasses import replace

from tests.workflows import slow

workflow = replace(slow.workflow, name="test_sleeper")
