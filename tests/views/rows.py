"""Rows for the tests of pages: made by the commands where there is one, else as the engine leaves them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from console.kernel.canonical import canonicalise, request_hash
from console.kernel.crypto import seal_json
from console.kernel.ids import effect_id, new_id, position_hash
from console.pages import new_token
from effects.models import Approval, Command, Effect, EffectAttempt, EffectRevision, Receiver, Review
from effects.states import Asked, Dedup, EffectStatus, Outcome, Reversibility, SubState
from runs.commands.start import start
from runs.models import Execution, Recorded, Recording, Run, Step, WorkflowVersion
from runs.states import Cause, ExecutionOutcome, Failure, InputClass, RunStatus, StepOutcome
from tests.people import World

EMAIL = "jana@brueckner.example"


def workflow() -> WorkflowVersion:
    return WorkflowVersion.objects.get(name="sales_offer_agent")


def run_in(world: World, *, title: str = "", **given: Any) -> Run:
    """A queued run, as the start command makes it; *title* renames it."""
    conversation = world.conversation
    run, _ = start(
        world.actor(world.operator),
        workflow=workflow(),
        conversation=conversation,
        given={"email": EMAIL, "request": "An offer for 40 seats, please.", **given},
        token=new_token(),
    )
    return change(run, title=title) if title else run


def change(run: Run, **fields: Any) -> Run:
    Run.objects.filter(id=run.id).update(**fields)
    run.refresh_from_db()
    return run


def stands(run: Run, status: RunStatus, **fields: Any) -> Run:
    """The run where *status* says that it stands, with what the database asks of such a row."""
    now = timezone.now()
    needs: dict[str, Any] = {}
    if status == RunStatus.RUNNING:
        needs = {"lease_until": now + timedelta(minutes=1), "fence": 1}
    if status == RunStatus.FAILED:
        needs = {
            "failure": Failure.NODE_ERROR,
            "failure_of": "draft_offer",
            "failure_text": "ValueError: no price",
        }
    if status in (RunStatus.COMPLETED, RunStatus.CANCELLED):
        needs = {"ended_at": now}
    return change(run, **{"status": status, "status_since": now, **needs, **fields})


def execution(
    run: Run,
    *,
    fence: int = 1,
    outcome: ExecutionOutcome | None = ExecutionOutcome.PAUSED,
    cause: Cause = Cause.START,
) -> Execution:
    return Execution.objects.create(
        run=run,
        fence=fence,
        cause=cause,
        worker_id=new_id("wrk"),
        ended_at=timezone.now() if outcome else None,
        outcome=outcome or "",
    )


def step(
    claim: Execution,
    node: str,
    number: int,
    *,
    outcome: StepOutcome = StepOutcome.DONE,
    task: str = "",
    problem: str = "",
    begin: datetime | None = None,
) -> Step:
    began = begin or timezone.now()
    return Step.objects.create(
        run=claim.run,
        execution=claim,
        task_id=task or f"task-{number}-{node}",
        node=node,
        number=number,
        started_at=began,
        ended_at=None if outcome == StepOutcome.RUNNING else began + timedelta(seconds=1),
        outcome=outcome,
        problem=problem,
    )


def recording(
    run: Run, node: str, number: int, *, request: Any, answer: Any, name: str = "a-model"
) -> Recording:
    def sealed(value: Any) -> bytes:
        return seal_json(value, workspace=run.workspace_id, owner=run.id)

    return Recording.objects.create(
        run=run,
        position=position_hash(f"{node}{number}"),
        place={"node": node, "step": number, "namespaces": [], "path": ""},
        kind=Recorded.MODEL,
        name=name,
        input_class=InputClass.RECORDED,
        request_hash=request_hash(canonicalise([name, number])),
        nth=0,
        fence=1,
        request=sealed(request),
        answer=sealed(answer),
        started_at=timezone.now(),
    )


def receiver(world: World, name: str = "crm") -> Receiver:
    row, _ = Receiver.objects.get_or_create(
        workspace=world.workspace,
        name=name,
        standing="live",
        defaults={"account": "acct", "base_url": "https://crm.example", "hosts": ["crm.example"]},
    )
    return row


def effect(
    world: World,
    run: Run,
    *,
    status: EffectStatus = EffectStatus.PENDING,
    sub: SubState = SubState.AWAITING_APPROVAL,
    node: str = "approve_offer",
    key: str = "offer",
    reference: str = "",
    number: int = 4,
    kind: str = "crm.create_offer",
) -> Effect:
    position = position_hash(f"{node}{number}")
    command = Command.objects.create(
        workspace=world.workspace,
        run_id=run.id,
        position=position,
        place={"node": node, "step": number},
        effect_type=kind,
        command_key=key,
        node=node,
        arguments=b"",
        machine_hash="h",
    )
    made = Effect.objects.create(
        id=effect_id(
            workspace=world.workspace.id, run_id=run.id, position=position, effect_type=kind, command_key=key
        ),
        workspace=world.workspace,
        command=command,
        run_id=run.id,
        customer_ref=run.customer_ref,
        effect_type=kind,
        contract_version=1,
        reversibility=Reversibility.REVERSIBLE,
        dedup=Dedup.KEY,
        receiver=receiver(world),
        account="acct",
        recipient="cus_000003",
        key="key-of-the-effect",
        status=status,
        sub_state=sub,
        request_hash="h",
        unresolved=sub == SubState.UNCERTAIN,
        needs_approval=sub == SubState.AWAITING_APPROVAL,
        provider_reference=reference,
        settled_at=timezone.now() if status in (EffectStatus.COMPLETED, EffectStatus.FAILED) else None,
    )
    EffectRevision.objects.create(
        effect=made,
        n=1,
        payload=b"",
        request=b"",
        shown={"amount_minor": 766000},
        recipient="cus_000003",
        request_hash="h",
    )
    return made


def attempt(
    made: Effect, outcome: Outcome = Outcome.COMPLETED, *, n: int = 1, problem: str = ""
) -> EffectAttempt:
    return EffectAttempt.objects.create(
        effect=made,
        n=n,
        fence=1,
        revision=1,
        request_hash="h",
        outcome=outcome,
        origin="exe",
        ended_at=None if outcome == Outcome.SENDING else timezone.now(),
        latency_ms=41,
        answer_status="201",
        problem=problem,
    )


def approval(
    world: World, run: Run, made: Effect | None = None, *, group: str = "", late: bool = False
) -> Approval:
    now = timezone.now()
    return Approval.objects.create(
        workspace=world.workspace,
        run_id=run.id,
        workflow=str(run.workflow),
        fingerprint=run.fingerprint,
        node="approve_offer",
        interrupt_id=new_id("ord"),
        interrupt_hash="h",
        asks=Asked.EFFECT if made else Asked.QUESTION,
        effect=made,
        revision=made.revision if made else None,
        payload_hash="h",
        title="Create an offer: 7,660.00 EUR",
        body=b"",
        allows=["approve", "reject"],
        asked_of=group,
        due_at=now + timedelta(hours=-1 if late else 4),
        expires_at=now + timedelta(days=1),
    )


def review(world: World, made: Effect) -> Review:
    return Review.objects.create(
        workspace=world.workspace, effect=made, reason="unqueryable", sentence="crm can't be asked about it."
    )
