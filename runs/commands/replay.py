"""Replay from checkpoint: always a new run, in evidence, simulation or live. The original's rows are only read."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from django.db import IntegrityError, transaction

from console import audit
from console.access import Actor
from console.kernel.canonical import canonicalise, request_hash
from console.kernel.crypto import seal_json
from console.kernel.errors import AlreadyDone, Invalid, KeyReused, Refusal
from effects.contracts import contracts
from effects.models import Receiver, Standing
from runs import selectors, waiting
from runs.availability import OperatorCommand, availability
from runs.engine.copying import NothingToCopy, copy_checkpoint
from runs.models import Checkpoint, Run, WorkflowVersion
from runs.states import RunKind, RunMode

COMMANDS = {
    RunMode.EVIDENCE: OperatorCommand.REPLAY_EVIDENCE,
    RunMode.SIMULATION: OperatorCommand.REPLAY_SIMULATION,
    RunMode.LIVE: OperatorCommand.REPLAY_LIVE,
}
LONGEST_REASON = 300


class Undoubled(Refusal):
    """A workflow may ask for effects of a type whose contract declares no double: nothing would answer in a simulation."""

    code = "no_double"
    status = 422


class NotIsolated(Refusal):
    """An isolated receiver can't be told from a live one: a simulation that reaches it would act on the outside world."""

    code = "not_isolated"
    status = 409


@dataclass(frozen=True)
class Launch:
    """What a person asks for when they make a run of a checkpoint. *models_asked*: of a simulation alone."""

    kind: RunKind
    mode: RunMode
    reason: str
    token: str
    models_asked: bool = False

    def hashed(self, checkpoint: Checkpoint, edit: object = None) -> str:
        """Of the input: the same token with another one is refused."""
        return request_hash(
            canonicalise(
                [self.kind.value, self.mode.value, self.reason, self.models_asked, checkpoint.id, edit]
            )
        )


def replay(
    actor: Actor,
    run_id: str,
    checkpoint_id: str,
    *,
    mode: RunMode,
    token: str,
    reason: str = "",
    models_asked: bool = False,
    on_behalf_of: str = "",
) -> tuple[Run, bool]:
    """Make a run that goes on from a copy of the checkpoint. Returns it, and whether this call made it.

    The same token and input return the first one's. Raises NotFound, Forbidden, AlreadyDone with the reason where
    this is not to be replayed so, Invalid, KeyReused, for a simulation Undoubled or NotIsolated; then there is no run and no checkpoint.
    """
    launch = Launch(RunKind.REPLAY, mode, _reason(reason), token, models_asked and mode == RunMode.SIMULATION)
    source = selectors.run_seen_by(actor, run_id)
    checkpoint = selectors.checkpoint_seen_by(actor, run_id, checkpoint_id)
    if mode == RunMode.LIVE and not launch.reason:
        raise Invalid("Say why: a live replay acts on the outside world.", field="reason")
    if made := same_launch(actor, launch, checkpoint):
        return made, False
    offer = availability(source, actor)[COMMANDS[mode]]
    if not offer.available:
        raise offer.refusal(f"{COMMANDS[mode].label} is not possible")
    if mode == RunMode.EVIDENCE and (before := precedes_its_recording(source, checkpoint)):
        raise AlreadyDone(f"{COMMANDS[mode].label} is not possible: {before}.")
    if mode == RunMode.SIMULATION and (refusals := against_simulation(source)):
        raise refusals[0]
    try:
        with transaction.atomic():
            run = insert(actor, source, checkpoint, launch)
            copy_checkpoint(checkpoint, run)
            record(actor, run, source, checkpoint, launch, on_behalf_of=on_behalf_of)
    except NothingToCopy as gone:
        raise AlreadyDone(str(gone)) from gone
    except IntegrityError:
        made = same_launch(actor, launch, checkpoint)
        if made is None:
            raise
        return made, False
    return run, True


def precedes_its_recording(source: Run, checkpoint: Checkpoint) -> str:
    """Why a checkpoint of a branch can't be replayed in evidence, in words; empty where it can.

    The copy that its edit was made on: what ran after it ran one step later, on the edited state.
    """
    if source.kind != RunKind.BRANCH or checkpoint.fence != 0 or checkpoint.source == "update":
        return ""
    return (
        "this is the state before the branch's edit, and the recording of the branch begins after its edit; replay from "
        "the edited checkpoint, or from this one in the run that the branch was made from"
    )


def against_simulation(source: Run) -> list[Refusal]:
    """Why nothing of *source* can be simulated now; asked by preview and launch alike, of replays and branches."""
    found: list[Refusal] = []
    if missing := undoubled_types(source.workflow):
        several = len(missing) > 1
        found.append(
            Undoubled(
                f"It can't be simulated: {source.workflow} may ask for {', '.join(missing)}, and "
                + ("their contracts declare no double." if several else "its contract declares no double.")
            )
        )
    return found + [NotIsolated(words) for words in _not_told_apart(source.workspace_id)]


def undoubled_types(workflow: WorkflowVersion) -> list[str]:
    """The effect types that the workflow may use and that nothing answers for in a simulation."""
    known = contracts()
    return [one for one in workflow.effect_types if one not in known or known[one].double is None]


def _not_told_apart(workspace_id: str) -> list[str]:
    """The isolated receivers that have a live one's account or address, each in a sentence."""
    receivers = list(Receiver.objects.filter(workspace=workspace_id).order_by("name"))
    live = [one for one in receivers if one.standing == Standing.LIVE]
    found = []
    for isolated in receivers:
        if isolated.standing != Standing.ISOLATED:
            continue
        for other in live:
            shared = [
                word
                for word, is_shared in (
                    # An account is one only at its own system; an address is one wherever it stands.
                    ("account", isolated.name == other.name and isolated.account == other.account),
                    ("address", bool(_address(isolated)) and _address(isolated) == _address(other)),
                )
                if is_shared
            ]
            if shared:
                found.append(
                    f"It can't be simulated: the isolated receiver {isolated.name} has the {' and the '.join(shared)} "
                    f"of the live receiver {other.name}. An administrator has to tell them apart first."
                )
    return found


def _address(receiver: Receiver) -> str:
    """Host and port, as they would be connected to."""
    parts = urlsplit(receiver.base_url)
    port = parts.port or {"http": 80, "https": 443, "smtp": 25}.get(parts.scheme, 0)
    return f"{parts.hostname}:{port}" if parts.hostname else ""


def _reason(reason: str) -> str:
    reason = reason.strip()
    if "\0" in reason:
        raise Invalid("The reason holds a character that is none.", field="reason")
    if len(reason) > LONGEST_REASON:
        raise Invalid(f"The reason is longer than {LONGEST_REASON} characters.", field="reason")
    return reason


def same_launch(actor: Actor, launch: Launch, checkpoint: Checkpoint, edit: object = None) -> Run | None:
    """The run that this form has made already. Raises KeyReused where it was used for something else."""
    made = Run.objects.filter(workspace=actor.workspace, command_token=_token(actor, launch)).first()
    if made is not None and made.input_hash != launch.hashed(checkpoint, edit):
        raise KeyReused("This form was used for another run. Open it again.", field="idempotency_key")
    return made


def _token(actor: Actor, launch: Launch) -> str:
    return f"{launch.kind}:{actor.user.id}:{launch.token}"[:80]


def insert(actor: Actor, source: Run, checkpoint: Checkpoint, launch: Launch, edit: object = None) -> Run:
    """The row of the new run: of the source's workflow version, conversation and customer."""
    run = Run(
        workspace=source.workspace,
        conversation=source.conversation,
        customer_ref=source.customer_ref,
        title=source.title,
        workflow=source.workflow,
        fingerprint=source.fingerprint,
        kind=launch.kind,
        mode=launch.mode,
        parent_run=source,
        parent_checkpoint=checkpoint,
        root_run=source.root_run,
        launch_reason=launch.reason,
        models_asked=launch.mode == RunMode.LIVE or launch.models_asked,
        starter=actor.user,
        input_hash=launch.hashed(checkpoint, edit),
        command_token=_token(actor, launch),
    )
    run.input = seal_json(
        selectors.input_of(source),  # type: ignore[arg-type]
        workspace=source.workspace_id,
        owner=run.id,
    )
    run.save(force_insert=True)
    return run


def record(
    actor: Actor, run: Run, source: Run, checkpoint: Checkpoint, launch: Launch, *, on_behalf_of: str = ""
) -> None:
    """The audit event of a launch, and the bell: in the transaction that makes the run."""
    what = f"{launch.kind.label} in {launch.mode.label.lower()}"
    audit.record(
        workspace_id=run.workspace_id,
        actor=actor.user,
        verb="run.replayed" if launch.kind == RunKind.REPLAY else "run.branched",
        subject=run.id,
        run_id=run.id,
        reason=launch.reason,
        on_behalf_of=on_behalf_of,
        sentence=f"{what} launched by {actor.user.name}: {run.title}"
        + (f" — {launch.reason}" if launch.reason else ""),
        mode=launch.mode.value,
        parent_run=source.id,
        parent_checkpoint=checkpoint.id,
        workflow=str(run.workflow),
        models_asked=run.models_asked,
    )
    waiting.ring(run)
    waiting.tell(run)
    waiting.tell(source)
