"""What people do about approvals and runs."""

from __future__ import annotations

import uuid
from functools import partial

from django.db import transaction
from django.db.models import Q
from hypothesis import strategies as st
from hypothesis.stateful import precondition

from effects import approvals, moves
from effects.models import Approval
from effects.states import ApprovalStatus, Decision
from tests.model.drawing import WHICH
from tests.model.machine import Intent, ModelRun, rule
from tests.model.sending import Sending


class Deciding(Sending):
    """What people do about approvals and runs."""

    @precondition(lambda self: self.is_asked())
    @rule(which=WHICH, by=st.sampled_from(["approver", "second_approver"]))
    def approve(self, which: int, by: str) -> None:
        self._decide(which, Decision.APPROVE, by, outdated=False)

    @precondition(lambda self: self.is_asked("pending", "decided", "expired", "superseded", "closed"))
    @rule(
        which=WHICH,
        decision=st.sampled_from([Decision.EDIT, Decision.REJECT, Decision.APPROVE]),
        by=st.sampled_from(["approver", "second_approver", "operator"]),
        outdated=st.sampled_from([False, False, False, True]),
    )
    def decide(self, which: int, decision: Decision, by: str, outdated: bool) -> None:
        self._decide(which, decision, by, outdated=outdated)

    def is_asked(self, *statuses: str) -> bool:
        """Whether a run asks for an approval, or asked for one, that stands so."""
        rows = self.judge.before
        return rows is not None and any(
            one["status"] in (statuses or ("pending",)) and one["order_id"] is None
            for one in rows["approval"].values()
        )

    def _decide(self, which: int, decision: Decision, by: str, *, outdated: bool) -> None:
        rows = self.judge.before
        assert rows is not None
        # Those that are open come first.
        of_runs = [row for row in rows["approval"].values() if row["order_id"] is None]
        found = sorted(of_runs, key=lambda row: bool(row["status"] != "pending"))
        self.decide_about(found[which % len(found)]["id"], decision, by, outdated=outdated)

    def decide_about(self, approval_id: str, decision: Decision, by: str, *, outdated: bool = False) -> None:
        asked = Approval.objects.get(id=approval_id)
        intent = next(one for one in self.intents if one.effect_id == asked.effect_id)
        tab = ", from a tab that is out of date" if outdated else ""
        self.step("decide", f"the {by.replace('_', ' ')} decides about “{intent.called}”: {decision}{tab}")
        self.command(
            f"{decision} {intent.called}",
            lambda: approvals.decide(
                self.setting.people[by],
                asked.id,
                decision=decision,
                payload_hash="sha256:of-another" if outdated else asked.payload_hash,
                version=asked.version,
                token=str(uuid.uuid4()),
                reason="It is too much." if decision == Decision.REJECT else "",
                answer={"amount_minor": 4_200} if decision == Decision.EDIT else None,
            ),
        )

    def may_be_continued(self) -> bool:
        """Something failed or was held, or an approval expired."""
        rows = self.judge.before
        return rows is not None and (
            any(one["sub_state"] in ("held", "refused") for one in rows["effect"].values())
            or any(one["status"] == "expired" for one in rows["approval"].values())
        )

    @precondition(lambda self: self.may_be_continued())
    @rule(which=WHICH)
    def continue_run(self, which: int) -> None:
        """As the command does for the effect that its run failed for."""
        intent = self.intent(which)
        self.step("continue", f"the run of “{intent.called}” is continued")
        if intent.run.over:
            self.story[-1] += f" — it was {intent.run.over}"
            return
        self.judge.may_leave_failed.add(intent.effect_id)
        self.errand("continue", partial(self.continue_for, intent))

    def continue_for(self, intent: Intent) -> None:
        with transaction.atomic():
            moves.make_ready_again(intent.effect_id)
        expired = Approval.objects.filter(effect_id=intent.effect_id).filter(
            Q(status=ApprovalStatus.EXPIRED) | Q(status=ApprovalStatus.PENDING)
        )
        if expired.exists():
            self._ask(intent, again=True)

    @precondition(lambda self: len(self.story) > 25 and not any(run.over for run in self.runs))
    @rule(which=st.integers(0, 1), how=st.sampled_from(["cancelled", "completed"]))
    def end_run(self, which: int, how: str) -> None:
        """One of the two; the other one is there to the end."""
        run = self.runs[which]
        self.step("end", f"run {which + 1} is {how}")
        self.command(how, lambda: self._end(run, how))

    def _end(self, run: ModelRun, how: str) -> None:
        approvals.close_for_run(run.run_id, why=f"The run was {how}")
        moves.cancel_unsent(run.run_id)
        run.over = how
        self.judge.ended_runs.add(run.run_id)
