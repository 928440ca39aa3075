"""Workers in processes of their own, that are really killed or stopped where a run says so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.plugin import CONTRACTS, ROOT
from tests.stack import environment

#: The contracts that only these tests have.
OWN = ("tests.effects.promises:CONTRACTS", "tests.battery.promises:CONTRACTS")


@dataclass
class Nursery:
    """See tests/battery/nursery.py. *crashes* is the folder of the marks that killed workers leave."""

    process: subprocess.Popen[str]
    log: Path
    crashes: Path

    def start(self, verb: str, which: str) -> int:
        """A new worker's process id."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{verb} {which}\n")
        self.process.stdin.flush()
        return int(self._line())

    def ended(self) -> int:
        """Wait for the worker that was started; its exit status."""
        return int(self._line())

    def run(self, verb: str, which: str) -> int:
        self.start(verb, which)
        return self.ended()

    def mark(self, run_id: str) -> str:
        """What the worker of this run knew when it was killed."""
        return (self.crashes / run_id).read_text()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the nursery has ended: {self.log.read_text()[-3000:]}"
        return line.strip()


@contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    crashes = folder / "crashes"
    crashes.mkdir()
    log = folder / "nursery.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.battery.nursery"],
            cwd=ROOT,
            env={
                **environment(),
                "SIGNALBOX_CONTRACTS": ",".join((*CONTRACTS, *OWN)),
                "SIGNALBOX_TEST_CRASHES": str(crashes),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        made = Nursery(process, log, crashes)
        try:
            assert made._line() == "ready"
            yield made
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)
