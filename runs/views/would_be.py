"""What a run in evidence or simulation would have sent, each compared with the original's effect by its hash."""

from __future__ import annotations

from dataclasses import dataclass

from effects.models import EffectRevision, WouldHave
from runs.models import Run
from runs.states import APART, RunMode

SAME, DIFFERENT, ABSENT = "same", "different", "absent"
_COMPARED = {
    SAME: "same as the original's",
    DIFFERENT: "differs from the original's",
    ABSENT: "not in the original",
}


@dataclass(frozen=True)
class WouldBe:
    """One row, and how its payload's hash stands to what the workflow proposed in the original at the same place."""

    row: WouldHave
    compared: str
    mode: RunMode

    @property
    def words(self) -> str:
        return _COMPARED[self.compared]

    @property
    def why_not_sent(self) -> str:
        if self.mode == RunMode.SIMULATION:
            return "not sent: simulated"
        if self.compared == SAME:
            return "not sent: recorded result used"
        return "not sent: no result is recorded for it"


def would_be_of(run: Run, *, most: int) -> list[WouldBe]:
    """Oldest first. A live run has none: what it means to send are effects."""
    if run.mode not in APART:
        return []
    rows = list(
        WouldHave.objects.filter(run_id=run.id, workspace_id=run.workspace_id)
        .defer("payload")
        .order_by("created_at", "id")[:most]
    )
    proposed = set(
        EffectRevision.objects.filter(
            effect_id__in=[row.stands_for for row in rows if row.stands_for], by=None
        ).values_list("effect_id", "request_hash")
    )
    return [WouldBe(row, _compared(row, proposed), RunMode(run.mode)) for row in rows]


def _compared(row: WouldHave, proposed: set[tuple[str, str]]) -> str:
    if not row.stands_for:
        return ABSENT
    return SAME if (row.stands_for, row.request_hash) in proposed else DIFFERENT
