"""Makes the day happen: the conversations, the runs that the operator starts, and what people decide about them.

Every record is made by the product itself: runs by its commands, steps and effects by its workers, in their own time.
Each thing is done once, however often the day is played, and a day that was broken off goes on where it stood.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import httpx
from django.db import IntegrityError, transaction
from django.utils import timezone

from console.kernel.errors import AlreadyDone
from console.kernel.ids import new_id
from demo.day import DAY, Cancels, Decides, Scene
from demo.people import Company
from effects.models import Approval, ApprovalDecision, Effect, Review
from effects.states import ApprovalStatus, SubState
from runs.commands.decide import decide
from runs.commands.start import start
from runs.commands.stop import cancel
from runs.models import Conversation, Direction, Message, Run, WorkflowVersion
from runs.selectors import workflows_of
from runs.states import RunStatus

LOOK_EVERY_S: Final = 0.2
SATURDAY: Final = 5


class NotInTime(Exception):
    """Something that the day waits for did not come about; the text says what, and what to do."""


@dataclass
class Play:
    """A scene with a run. *fresh*: something was started or decided for it now, not in an earlier playing."""

    scene: Scene
    run: Run
    fresh: bool = False

    @property
    def acts_last(self) -> bool:
        """The mail that hangs takes its worker's process with it: everything else has come to rest by then."""
        return isinstance(self.scene.act, Decides) and self.scene.act.mail_hangs


def open_conversations(company: Company) -> int:
    """Make the conversations that are not there yet. Returns how many were made."""
    return sum(_open(company, scene) for scene in DAY)


def _open(company: Company, scene: Scene) -> bool:
    """Whether the conversation was made now. The key of its first message is unique: it is made once."""
    if _conversation(company, scene) is not None:
        return False
    times = times_of(scene, timezone.localtime())
    try:
        with transaction.atomic():
            conversation = Conversation.objects.create(
                id=new_id("conv", times[0]),
                workspace=company.workspace,
                subject=scene.subject,
                customer_ref=scene.customer.ref,
                customer_name=scene.customer.company,
                channel=scene.channel,
                language=scene.customer.language,
                created_at=times[0],
            )
            for number, (said, at) in enumerate(zip(scene.said, times, strict=True)):
                Message.objects.create(
                    id=new_id("msg", at),
                    conversation=conversation,
                    direction=Direction.NOTE if said.author else Direction.INBOUND,
                    author=said.author or scene.customer.name,
                    text=said.text,
                    at=at,
                    post_key=_post_key(company, scene, number),
                )
    except IntegrityError:
        return False  # another process made it at the same moment
    return True


def _conversation(company: Company, scene: Scene) -> Conversation | None:
    first = Message.objects.filter(run_id="", post_key=_post_key(company, scene, 0))
    message = first.select_related("conversation").first()
    return message.conversation if message else None


def _post_key(company: Company, scene: Scene, number: int) -> str:
    return f"{company.workspace.id}/{scene.key}/{number}"


def times_of(scene: Scene, now: datetime) -> list[datetime]:
    """The scene's clock times on the newest working day on which all of them are past."""
    day = now
    while day.weekday() >= SATURDAY or _at(scene, day)[-1] > now:
        day -= timedelta(days=1)
    return _at(scene, day)


def _at(scene: Scene, day: datetime) -> list[datetime]:
    return [
        day.replace(hour=said.at.hour, minute=said.at.minute, second=0, microsecond=0) for said in scene.said
    ]


def play_day(
    company: Company, *, mail_url: str, say: Callable[[str], object], within_s: float = 180
) -> list[Play]:
    """Run the workflows of the day to where they come to rest, telling of each conversation what became of it.

    Returns the plays. Raises NotInTime when no worker brings the workflows, or when something is still under way
    after *within_s*; httpx.HTTPError when the mail catcher can't be told what to do.
    """
    ends = time.monotonic() + within_s
    plays = _start_all(company, ends)
    for scene in DAY:
        if not scene.workflow:
            say(f"{_name(scene)}: no run yet")
    still = list(plays)
    while still:
        still = _look(company, still, mail_url, say)
        if still and time.monotonic() > ends:
            raise NotInTime(f"still under way: {', '.join(play.run.id for play in still)}")
        time.sleep(LOOK_EVERY_S if still else 0)
    return plays


def _start_all(company: Company, ends: float) -> list[Play]:
    versions = _workflows(company, ends)
    return [_start(company, scene, versions[scene.workflow]) for scene in DAY if scene.workflow]


def _workflows(company: Company, ends: float) -> dict[str, WorkflowVersion]:
    """The workflows of the day, once a worker has brought them."""
    wanted = {scene.workflow for scene in DAY if scene.workflow}
    while True:
        found = {version.name: version for version in workflows_of(company.actor("operator"))}
        if wanted <= set(found):
            return found
        if time.monotonic() > ends:
            raise NotInTime(
                f"no worker has brought {', '.join(sorted(wanted - set(found)))}; start `manage.py worker`"
            )
        time.sleep(LOOK_EVERY_S)


def _start(company: Company, scene: Scene, version: WorkflowVersion) -> Play:
    run, made = start(
        company.actor("operator"),
        workflow=version,
        conversation=_conversation(company, scene),
        given={"email": scene.customer.email, _asks(version): scene.request},
        token=f"demo/{scene.key}",
    )
    return Play(scene, run, fresh=made)


def _asks(version: WorkflowVersion) -> str:
    """The name of the field that takes the customer's words."""
    return str(next(name for name in version.input_schema["required"] if name != "email"))


def _look(company: Company, plays: Sequence[Play], mail_url: str, say: Callable[[str], object]) -> list[Play]:
    """One look at every play: act where people are asked, tell of those at rest. Returns those still under way."""
    _refresh(plays)
    moving = _moving(plays)
    waits_for_others = any(not play.acts_last for play in plays)
    still = []
    for play in plays:
        if play.run.id in moving:
            still.append(play)
        elif _is_to_act(play):
            if not (play.acts_last and waits_for_others):
                _act(company, play, mail_url)
            still.append(play)
        else:
            say(f"{_name(play.scene)}: {outcome(play.run)}")
    return still


def _refresh(plays: Iterable[Play]) -> None:
    rows = Run.objects.in_bulk([play.run.id for play in plays])
    for play in plays:
        play.run = rows[play.run.id]


def _moving(plays: Iterable[Play]) -> set[str]:
    """The runs that go on by themselves, or whose effects the ledger has yet to bring to a person or an end."""
    runs = {play.run.id: play.run for play in plays}
    reviewed = Review.objects.filter(closed_at=None, effect__run_id__in=runs).values("effect_id")
    unsettled = set(
        Effect.objects.filter(run_id__in=runs, sub_state__in=[SubState.IN_FLIGHT, SubState.UNCERTAIN])
        .exclude(id__in=reviewed)
        .values_list("run_id", flat=True)
    )
    return unsettled | {
        run.id for run in runs.values() if run.status in (RunStatus.QUEUED, RunStatus.RUNNING)
    }


def _is_to_act(play: Play) -> bool:
    """Whether the scene's person is asked now, and nobody has decided about this run before."""
    return (
        play.scene.act is not None
        and play.run.status == RunStatus.WAITING_APPROVAL
        and not ApprovalDecision.objects.filter(approval__run_id=play.run.id).exists()
    )


def _act(company: Company, play: Play, mail_url: str) -> None:
    """What the scene's person does now. Whoever is logged in meanwhile may be quicker: then theirs stands."""
    with suppress(AlreadyDone):
        match play.scene.act:
            case Cancels(note):
                _cancel(company, play.run, note)
            case Decides() as decides:
                if decides.mail_hangs:
                    _order_hang(mail_url, play.scene.customer.email)
                _decide(company, play.run, decides)
        play.fresh = True


def _cancel(company: Company, run: Run, note: str) -> None:
    operator = company.actor("operator")
    with transaction.atomic():
        cancel(operator, run.id, token=f"demo:{run.id}")
        _note(run, operator.user.name, note)


def _decide(company: Company, run: Run, decides: Decides) -> None:
    approval = Approval.objects.filter(run_id=run.id, status=ApprovalStatus.PENDING).first()
    if approval is None:
        raise AlreadyDone("Nobody is asked any more.")
    decide(
        company.actor(decides.by),
        approval.id,
        decision=decides.decision,
        payload_hash=approval.payload_hash,
        version=approval.version,
        token=f"demo/{run.id}",
        reason=decides.reason,
    )


def _note(run: Run, author: str, text: str) -> None:
    assert run.conversation_id is not None
    Message.objects.create(
        conversation_id=run.conversation_id, direction=Direction.NOTE, author=author, text=text
    )


def _order_hang(mail_url: str, to: str) -> None:
    """The mail catcher shall keep the next mail to this address and leave its sender without an answer."""
    with httpx.Client(base_url=mail_url, timeout=5) as catcher:
        ordered = catcher.get("/_faults").raise_for_status().json()["faults"]
        if not any(order["kind"] == "hang" and order["to"] == to for order in ordered):
            catcher.post("/_faults", json={"kind": "hang", "match": {"to": to}}).raise_for_status()


def _name(scene: Scene) -> str:
    return f"{scene.customer.company}, {scene.subject!r}"


def outcome(run: Run) -> str:
    """In words, where a run stands, and where its effects stand."""
    status = run.get_status_display().lower()
    if run.failure:
        status = f"{status}: {run.get_failure_display().lower()}"
    effects = Effect.objects.filter(run_id=run.id).order_by("created_at")
    shown = ", ".join(f"{effect.effect_type} {effect.sub_state or effect.status}" for effect in effects)
    return f"{status} ({shown})" if shown else status
