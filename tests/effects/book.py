"""One workspace's ledger under test: a run that proposes and performs, and the outside's own records as the witness."""

from __future__ import annotations

import base64
import itertools
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import httpx
from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from console.kernel.ids import new_id, successor_effect_id
from console.models import User
from effects import approvals, intents, ledger, moves, outcomes, rounds
from effects.approvals import Pause, Request
from effects.contracts import contract
from effects.intents import Proposal, Why
from effects.ledger import Refused, Visit, Wait
from effects.models import (
    Approval,
    ApprovalDecision,
    Effect,
    EffectAttempt,
    Receiver,
    Review,
    WouldHave,
)
from effects.origin import Inherited, OriginLost, Result, Unpermitted
from effects.receivers import Answer
from effects.states import ApprovalStatus, Asked, Decision, Outcome, ReviewReason, Stance
from tests.people import World

T = TypeVar("T")
_numbers = itertools.count(1_000)

OFFER = {
    "customer_id": "cus_000001",
    "subject": "40 seats",
    "lines": [{"sku": "SEAT", "description": "Seat", "quantity": 2, "unit_minor": 500}],
    "amount_minor": 1000,
    "currency": "USD",
}
TICKET = {
    "customer_id": "cus_000001",
    "subject": "It does not start",
    "description": "Since this morning.",
    "priority": "normal",
}
SEATS = {"customer_id": "cus_000001", "seats": 40, "until": "2027-01-31"}


@dataclass
class Run:
    """What the ledger needs of an execution. *lost*: it is no longer ours."""

    workspace_id: str
    run_id: str = field(default_factory=lambda: new_id("run"))
    customer_ref: str = "cus_000009"
    name: str = "exe_of_a_test"
    worker_id: str = "wrk_of_a_test"
    lost: bool = False
    unpermitted: str = ""
    stance: Stance = Stance.LIVE
    permitted_types: frozenset[str] = frozenset()
    #: The effects of the run that this one replays, and whether they were settled before its checkpoint.
    lineage: dict[str, bool] = field(default_factory=dict)

    def earlier(self, position: str, effect_type: str, command_key: str) -> Effect | None:
        return (
            Effect.objects.select_related("receiver", "command")
            .filter(
                id__in=self.lineage,
                command__position=position,
                command__command_key=command_key,
                effect_type=effect_type,
            )
            .first()
        )

    def inherited(self, effect_id: str) -> Inherited | None:
        if effect_id not in self.lineage:
            return None
        effect = Effect.objects.select_related("receiver", "command").get(id=effect_id)
        return Inherited(effect, self.lineage[effect_id])

    def intended_before(self, would_have_id: str) -> WouldHave | None:
        return None

    def hold(self) -> None:
        if self.lost:
            raise OriginLost("the run is not held by this execution any more")

    def check_permitted(self) -> None:
        if self.unpermitted:
            raise Unpermitted(self.unpermitted)


def at(position: str = "a place", **more: Any) -> Why:
    return Why(position=position, place={"node": "send"}, node="send", **more)


@dataclass
class Witness:
    """What the test receiver and the mail catcher recorded of one account."""

    client: httpx.Client
    receiver: str
    mail: str
    smtp_port: int
    account: str = ""

    def requests(self, *methods: str) -> list[dict[str, Any]]:
        """Those that bear effects, or those of *methods*."""
        found = self.client.get(f"{self.receiver}/_records/requests", params={"account": self.account})
        wanted = methods or ("POST", "PUT")
        return [one for one in found.raise_for_status().json()["requests"] if one["method"] in wanted]

    def effects(self) -> list[dict[str, Any]]:
        found = self.client.get(f"{self.receiver}/_records/effects", params={"account": self.account})
        return list(found.raise_for_status().json()["effects"])

    @property
    def rx(self) -> tuple[int, int]:
        """Effects made / effect-bearing requests received."""
        return len(self.effects()), len(self.requests())

    def mails(self, effect_id: str) -> list[dict[str, Any]]:
        found = self.client.get(f"{self.mail}/_records/messages", params={"contains": effect_id})
        return list(found.raise_for_status().json()["messages"])

    def order(self, kind: str, **order: Any) -> None:
        """The next effect-bearing request (or what *match* says) goes wrong in this way."""
        placed = self.client.post(
            f"{self.receiver}/_faults", json={"account": self.account, "kind": kind, **order}
        )
        placed.raise_for_status()

    def order_mail(self, kind: str, to: str, **order: Any) -> None:
        placed = self.client.post(f"{self.mail}/_faults", json={"kind": kind, "match": {"to": to}, **order})
        placed.raise_for_status()

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Somebody else's request to the same account, which is no attempt of ours."""
        headers = {"Authorization": f"Bearer {self.account}:s3cret"}
        return self.client.post(f"{self.receiver}{path}", json=body, headers=headers)


@dataclass
class Book:
    """Propose and perform as one run of the workspace does, and look at the rows."""

    world: World
    witness: Witness
    run: Run = field(init=False)
    #: Requests at the receiver that are not ours.
    strangers: int = 0
    #: Attempts whose sender the test plays itself, without sending.
    played: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.run = Run(self.world.workspace.id)
        self.witness.account = self.world.account

    def propose(
        self,
        effect_type: str = "ledger.offer",
        *,
        key: str = "one",
        position: str = "a place",
        run: Run | None = None,
        **changes: Any,
    ) -> Proposal:
        return intents.propose(
            run or self.run, effect_type, key, {**self.usual(effect_type), **changes}, at(position)
        )

    def usual(self, effect_type: str) -> dict[str, Any]:
        """A payload that fits."""
        if "mail" in effect_type:
            to = f"{self.world.workspace.id}@harborpine.example"
            return {
                "to": to,
                "subject": "Your offer",
                "body": "Please see below.",
                "customer_id": "cus_000001",
            }
        if "note" in effect_type:
            return {"customer_id": "cus_000001", "name": "Harbor Pine", "discount": 10, "newsletter": False}
        if "seats" in effect_type:
            return dict(SEATS)
        return dict(TICKET if "ticket" in effect_type else OFFER)

    def perform(self, effect_id: str, *, run: Run | None = None, until: str = "completed") -> Result | Wait:
        """One visit."""
        return ledger.perform(run or self.run, effect_id, Visit(), until=until)

    def refusal(self, effect_id: str) -> str:
        """The words with which performing it is refused; empty when it is not."""
        try:
            self.perform(effect_id)
        except Refused as refused:
            return str(refused)
        return ""

    def refusal_after_wait(self, effect_id: str) -> str:
        """The same after its wait is over."""
        self.make_due(effect_id)
        return self.refusal(effect_id)

    def perform_now(self, effect_id: str) -> Result | Wait:
        """One visit after its wait is over."""
        self.make_due(effect_id)
        return self.perform(effect_id)

    def make_due(self, effect_id: str) -> None:
        Effect.objects.filter(id=effect_id).update(due_at=Now())

    def effect(self, effect_id: str) -> Effect:
        return Effect.objects.select_related("receiver", "command").get(id=effect_id)

    def standing(self, effect_id: str) -> tuple[str, str]:
        effect = self.effect(effect_id)
        return effect.status, effect.sub_state

    def outcomes(self, effect_id: str) -> list[str]:
        return list(
            EffectAttempt.objects.filter(effect_id=effect_id).order_by("n").values_list("outcome", flat=True)
        )

    def reviews(self, effect_id: str) -> list[str]:
        """The reasons of its open reviews."""
        return sorted(self.effect(effect_id).reviews.filter(closed_at=None).values_list("reason", flat=True))

    def claim(self, effect_id: str) -> tuple[Effect, EffectAttempt]:
        """Take it as a sender does that then dies, or is late: the attempt is there, nothing is sent."""
        effect = self.effect(effect_id)
        attempt = ledger._claim(self.run, effect)
        assert attempt is not None
        self.played.add(attempt.id)
        return effect, attempt

    def standing_as(self, effect: Effect, **fields: Any) -> Effect:
        """Another effect like *effect*, inserted as *fields* say: rows can't be edited to stand just anywhere."""
        command = effect.command
        command.pk = command.id = new_id("cmd")
        command.command_key = command.id
        command._state.adding = True
        command.save()
        made = Effect.objects.get(id=effect.id)
        made.pk = made.id = successor_effect_id(effect.id, next(_numbers))
        made.command = command
        made.key = made.id
        for name, value in fields.items():
            setattr(made, name, value)
        made._state.adding = True
        made.save(force_insert=True)
        return Effect.objects.select_related("receiver", "command").get(id=made.id)

    def lose(self, effect_id: str) -> None:
        """Its sender's lease is over."""
        Effect.objects.filter(id=effect_id).update(lease_until=Now() - timedelta(seconds=1))

    def pass_settle_time(self, effect_id: str) -> None:
        """The last send is so long ago that its lease, the total deadline and the settle time are over."""
        Effect.objects.filter(id=effect_id).update(last_sent_at=Now() - timedelta(hours=1), due_at=Now())

    def settle(self, effect_id: str, attempt: EffectAttempt, outcome: Outcome, **fields: Any) -> None:
        """What an answer of *outcome* does to an attempt, late or not."""
        effect = self.effect(effect_id)
        outcomes.settle(effect, attempt, contract(effect.effect_type), Answer(outcome, **fields))

    def point(
        self, url: str, *, receiver: str = "crm", hosts: list[str] | None = None, **fields: Any
    ) -> None:
        """The receiver is somewhere else."""
        Receiver.objects.filter(workspace=self.world.workspace, name=receiver).update(
            base_url=url, hosts=["127.0.0.1"] if hosts is None else hosts, **fields
        )

    def ask(
        self, effect_id: str = "", *, interrupt: str = "int_1", run: Run | None = None, **request: Any
    ) -> Approval:
        """Open an approval as a worker does that finds the pause, and return the newest of its rounds."""
        origin = run or self.run
        with transaction.atomic():
            approvals.open_for(
                self.pause(interrupt=interrupt, run=origin), [self.request(effect_id, **request)]
            )
        newest = rounds.newest_of(origin.run_id, interrupt, 0)
        assert newest is not None
        return newest

    def pause(
        self, *, interrupt: str = "int_1", value_hash: str = "sha256:asked", run: Run | None = None
    ) -> Pause:
        origin = run or self.run
        return Pause(
            workspace_id=origin.workspace_id,
            run_id=origin.run_id,
            checkpoint_id="cp_1",
            workflow="test_offers@1",
            fingerprint="fp",
            node="send",
            interrupt_id=interrupt,
            interrupt_hash=value_hash,
        )

    def request(self, effect_id: str = "", **fields: Any) -> Request:
        if effect_id:
            asked = approvals.request_for_effect(self.effect(effect_id))
            return Request(**{**asked.__dict__, **fields})
        return Request(
            **{
                "asks": Asked.QUESTION,
                "title": "Which language?",
                "body": {"question": "Which language?"},
                "allows": (Decision.RESPOND,),
                **fields,
            }
        )

    def decide(
        self,
        approval: Approval,
        decision: Decision = Decision.APPROVE,
        *,
        by: User | None = None,
        token: str = "",
        involved: frozenset[str] = frozenset(),
        **fields: Any,
    ) -> ApprovalDecision:
        """One request of a person, in a transaction of its own as the command's is."""
        with transaction.atomic():
            return approvals.decide(
                self.world.actor(by or self.world.approver),
                approval.id,
                **{
                    "decision": decision,
                    "payload_hash": approval.payload_hash,
                    "version": approval.version,
                    "token": token or str(uuid.uuid4()),
                    "involved": involved,
                    **fields,
                },
            )

    def approved(self, effect_type: str = "ledger.asked_offer", **changes: Any) -> Effect:
        """An effect with a person's grant."""
        proposal = self.propose(effect_type, **changes)
        self.decide(self.ask(proposal.effect_id, interrupt=f"for {proposal.effect_id}"))
        return self.effect(proposal.effect_id)

    def sent_attempts(self) -> int:
        """Attempts at HTTP receivers of which anything left: an answer proves it, or it may have."""
        attempts = EffectAttempt.objects.filter(effect__workspace=self.world.workspace).exclude(
            effect__receiver__name="mail"
        )
        unsent = Q(outcome__in=[Outcome.NOT_SENT, Outcome.SENDING], answer_status="")
        return attempts.exclude(unsent).exclude(id__in=self.played).count()

    def check_requests(self, elsewhere: int = 0) -> None:
        """Requests that bear effects and reached a receiver = attempts that were sent, whatever the test did."""
        arrived = len(self.witness.requests()) - self.strangers + elsewhere
        sent = self.sent_attempts()
        assert arrived == sent, (
            f"{arrived} requests arrived, but the ledger has {sent} attempts that were sent"
        )

    def tidy(self) -> None:
        """Committed rows stay in the database; none of them may keep another test's sweep busy."""
        mine = Effect.objects.filter(workspace=self.world.workspace)
        for effect in mine.filter(sub_state="in_flight"):
            self.lose(effect.id)
            with transaction.atomic():
                moves.lose_lease(effect.id)
        left = mine.exclude(status__in=["completed", "failed"])
        for effect in left:
            moves.open_review(effect, ReviewReason.CONTRADICTION, "The test is over.")
        left.update(
            status="failed",
            sub_state="cancelled",
            unresolved=False,
            lease_until=None,
            due_at=None,
            settled_at=Now(),
        )
        Review.objects.filter(workspace=self.world.workspace, closed_at=None).update(closed_at=Now())
        Approval.objects.filter(workspace=self.world.workspace, status=ApprovalStatus.PENDING).update(
            status=ApprovalStatus.CLOSED, ended_at=Now()
        )


def at_once(count: int, work: Callable[[int], T]) -> list[T | Exception]:
    """*work(i)* in so many threads that begin together, each with its own connection; what each returned or raised."""
    gate = threading.Barrier(count)

    def begin(number: int) -> T | Exception:
        try:
            gate.wait(30)
            return work(number)
        except Exception as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def somebody_waits() -> None:
    """Until another connection stands at a lock that this one holds."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            )
            if cursor.fetchone()[0]:
                return
        time.sleep(0.01)
    raise AssertionError("nobody waits for what this connection has locked")


def rows_of_all_tables() -> dict[str, int]:
    """How many rows every table of the product has, as this transaction sees them."""
    with connection.cursor() as cursor:
        counts = {}
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT count(*) FROM "{table}"')
            counts[table] = cursor.fetchone()[0]
    return counts


def every_text() -> dict[str, str]:
    """Everything that stands in any column of any table, by table, bytes as they are."""
    with connection.cursor() as cursor:
        found = {}
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT coalesce(string_agg(t::text, E'\\n'), '') FROM \"{table}\" t")
            found[table] = cursor.fetchone()[0]
    return found


def tables_that_hold(word: str) -> list[str]:
    """As text, or as the hexadecimal that bytes are shown in."""
    coded = [word, word.encode().hex(), base64.b64encode(word.encode()).decode().rstrip("=")]
    return [table for table, text in every_text().items() if any(code in text for code in coded)]
