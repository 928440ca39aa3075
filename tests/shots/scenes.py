"""Effects in every state that their pages tell apart, brought there by the ledger at the demo's own receivers."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import psycopg
from django.db import transaction
from django.db.models.functions import Now

from demo.people import Company
from effects import approvals, intents, ledger, moves, orders, reconcile
from effects.approvals import Pause, request_for_effect
from effects.commands import compensate, repeat, stop_sending
from effects.commands.ask_receiver import ask_receiver
from effects.intents import Why
from effects.ledger import Refused, Visit
from effects.models import Approval, Effect, Order, Stop
from effects.states import ApprovalStatus, Decision, OrderStatus, ReviewReason, StopScope
from runs.commands.decide import decide
from runs.commands.start import start
from runs.models import Conversation, Run, WorkflowVersion
from tests.views.asking import HeldByNobody

_numbers = itertools.count(1)

OFFER = {
    "customer_id": "cus_000003",
    "subject": "40 Plätze und zwei Schulungstage",
    "lines": [
        {"sku": "SEAT-TEAM", "description": "Team seat, one year", "quantity": 40, "unit_minor": 14_400},
        {"sku": "TRAIN-DAY", "description": "Training day on site", "quantity": 2, "unit_minor": 95_000},
    ],
    "amount_minor": 766_000,
    "currency": "EUR",
}
MAIL = {
    "to": "j.brueckner@brueckner-maschinen.example",
    "subject": "Ihr Angebot über 40 Plätze",
    "body": "Guten Tag Frau Brückner,\n\nanbei unser Angebot.\n\nMit freundlichen Grüßen\nNorthgate Software",
    "customer_id": "cus_000003",
}
TICKET = {
    "customer_id": "cus_000006",
    "subject": "Erreur lors de l’export des rapports",
    "description": "L’export PDF affiche une erreur et la page reste blanche, sur trois postes.",
    "priority": "high",
}


@dataclass
class Scenes:
    """The company's effects, made one for each picture. *receiver* and *mail*: where faults are ordered.

    *customer*: whom the next ones are for, so that a filter can choose them.
    """

    company: Company
    receiver: str
    mail: str
    customer: str = ""

    def every(self) -> dict[str, Callable[[], Effect]]:
        return {
            "window-open": self.window_open,
            "window-passed": self.window_passed,
            "no-dedup": self.no_dedup,
            "found": self.found,
            "not-found": self.not_found,
            "proven-absent": self.proven_absent,
            "in-flight": self.in_flight,
            "held": self.held,
            "refused": self.refused,
            "completed": self.completed,
            "cancelled": self.cancelled,
            "under-review": self.under_review,
            "order-open": self.order_open,
            "order-due": self.order_due,
            "order-done": self.order_done,
            "order-refused": self.order_refused,
            "order-in-flight": self.order_in_flight,
            "sent-as-new": self.sent_as_new,
            "successor-sent": self.successor_sent,
            "long": self.long,
            "compensated": self.compensated,
        }

    # -- how an effect comes about ---------------------------------------------------------------------------------

    def run(self) -> Run:
        number = next(_numbers)
        conversation = Conversation.objects.get(
            workspace=self.company.workspace, subject="Angebot für 40 Plätze und zwei Schulungstage"
        )
        run, _ = start(
            self.company.actor("operator"),
            workflow=WorkflowVersion.objects.get(name="sales_offer_agent"),
            conversation=conversation,
            given={"email": MAIL["to"], "request": "Please send an offer."},
            token=f"shots-{number}",
        )
        Run.objects.filter(id=run.id).update(status="waiting_effect")
        return Run.objects.get(id=run.id)

    def intend(self, effect_type: str, payload: dict[str, Any], node: str) -> Effect:
        run = self.run()
        why = Why(position=f"shots{next(_numbers)}", place={"node": node}, node=node)
        payload = payload | ({"customer_id": self.customer} if self.customer else {})
        made = intents.propose(self.origin(run.id), effect_type, node, payload, why)
        effect = Effect.objects.get(id=made.effect_id)
        return self.approve(run, effect) if effect.needs_approval else effect

    def approve(self, run: Run, effect: Effect) -> Effect:
        pause = Pause(
            workspace_id=run.workspace_id,
            run_id=run.id,
            checkpoint_id="",
            workflow=str(run.workflow),
            fingerprint=run.fingerprint,
            node="approve_offer",
            interrupt_id=f"shots{next(_numbers)}",
            interrupt_hash="sha256:0",
        )
        with transaction.atomic():
            approvals.open_for(pause, [request_for_effect(effect)])
        self.agree(
            Approval.objects.get(effect=effect, status=ApprovalStatus.PENDING), "List price, no discount."
        )
        return Effect.objects.get(id=effect.id)

    def agree(self, approval: Approval, reason: str) -> None:
        decide(
            self.company.actor("approver"),
            approval.id,
            decision=Decision.APPROVE,
            payload_hash=approval.payload_hash,
            version=approval.version,
            token=f"shots-{next(_numbers)}",
            reason=reason,
        )

    def origin(self, run_id: str) -> HeldByNobody:
        return HeldByNobody(self.company.workspace.id, run_id)

    def perform(self, effect: Effect) -> Effect:
        with suppress(Refused):
            ledger.perform(self.origin(effect.run_id), effect.id, Visit())
        return self.fresh(effect)

    def fresh(self, effect: Effect) -> Effect:
        return Effect.objects.select_related("receiver", "command").get(id=effect.id)

    def fault(self, kind: str, **order: Any) -> None:
        account = f"{self.company.workspace.id}-live"
        httpx.post(
            f"{self.receiver}/_faults", json={"account": account, "kind": kind, **order}, trust_env=False
        ).raise_for_status()

    def earlier(self, effect: Effect, **since: float) -> Effect:
        """As if its sending were so long ago."""
        past = timedelta(**since)
        rows = Effect.objects.filter(id=effect.id)
        rows.update(first_sent_at=Now() - past, last_sent_at=Now() - past)
        rows.exclude(key_until=None).update(key_until=Now() + timedelta(days=5, hours=14) - past)
        _long_ago(effect.id, past)
        return self.fresh(effect)

    def look(self, effect: Effect) -> Effect:
        Effect.objects.filter(id=effect.id).update(due_at=Now())
        reconcile.look(effect.id)
        return self.fresh(effect)

    # -- the states ------------------------------------------------------------------------------------------------

    def window_open(self) -> Effect:
        effect = self.intend("crm.create_offer", OFFER, "create_offer")
        self.fault("drop_after_commit")
        return self.earlier(self.perform(effect), minutes=22)

    def window_passed(self) -> Effect:
        effect = self.intend("crm.create_offer", OFFER, "create_offer")
        self.fault("drop_before")
        return self.earlier(self.perform(effect), days=7)

    def no_dedup(self) -> Effect:
        effect = self.intend("mail.send", MAIL, "mail_offer")
        order = {"kind": "drop_after_data", "match": {"to": MAIL["to"]}}
        httpx.post(f"{self.mail}/_faults", json=order, trust_env=False).raise_for_status()
        return self.perform(effect)

    def found(self) -> Effect:
        effect = self.intend("crm.create_offer", OFFER, "create_offer")
        self.fault("drop_after_commit")
        return self.look(self.earlier(self.perform(effect), days=7))

    def not_found(self) -> Effect:
        return self.look(self.window_passed())

    def proven_absent(self) -> Effect:
        effect = self.intend("desk.open_ticket", TICKET, "open_ticket")
        self.fault("drop_before")
        return self.look(self.earlier(self.perform(effect), hours=2))

    def long(self) -> Effect:
        """Texts as long as people and agents write them, of a customer whose reference is no short one."""
        ticket = TICKET | {
            "customer_id": "cus_" + "0123456789abcdef" * 6,
            "subject": "Erreur lors de l’export: " + "Tabellenblattübersichtsexportfehlermeldung " * 5,
            "description": "L’export PDF affiche une erreur.\n\n"
            + "La page reste blanche, sur trois postes. " * 60,
        }
        effect = self.intend("desk.open_ticket", ticket, "open_ticket")
        self.fault("drop_before")
        return self.perform(effect)

    def in_flight(self) -> Effect:
        effect = self.intend("mail.send", MAIL, "mail_offer")
        with transaction.atomic():
            claimed = moves.claim(
                self.fresh(effect),
                lease=timedelta(hours=1),
                key_window=timedelta(0),
                worker_id="wrk",
                origin="exe",
            )
        assert claimed is not None
        return self.fresh(effect)

    def held(self) -> Effect:
        effect = self.intend("desk.open_ticket", TICKET, "open_ticket")
        self.fault("503_unprocessed")
        effect = self.perform(effect)
        assert moves.hold(effect.id, tries=1)
        return self.fresh(effect)

    def refused(self) -> Effect:
        effect = self.intend("crm.create_offer", OFFER, "create_offer")
        self.fault("401")
        return self.perform(effect)

    def completed(self) -> Effect:
        return self.perform(self.intend("crm.create_offer", OFFER, "create_offer"))

    def cancelled(self) -> Effect:
        effect = self.intend("mail.send", MAIL, "mail_offer")
        moves.cancel_unsent(effect.run_id)
        return self.fresh(effect)

    def under_review(self) -> Effect:
        effect = self.window_open()
        moves.open_review(
            effect, ReviewReason.MISMATCH, "crm has off_000001 with amount_minor 766100, not 766000."
        )
        return effect

    def order_open(self) -> Effect:
        effect = self.no_dedup()
        self.order(repeat.deliver_again, effect, "The customer called: nothing has come.")
        ask_receiver_where_possible(self.company, effect)
        return effect

    def order_due(self) -> Effect:
        effect = self.window_open()
        Effect.objects.filter(id=effect.id).update(due_at=Now())
        self.order(repeat.deliver_again, effect, "crm is back; the customer waits.")
        return self.fresh(effect)

    def order_done(self) -> Effect:
        effect = self.order_due()
        self.carry_out(effect)
        return self.fresh(effect)

    def order_refused(self) -> Effect:
        """Ordered, and found at the receiver before a worker came to it."""
        effect = self.look(self.order_due())
        self.carry_out(effect)
        return self.fresh(effect)

    def order_in_flight(self) -> Effect:
        effect = self.order_open()
        self.second(effect)
        with transaction.atomic():
            claimed = moves.claim(
                self.fresh(effect),
                lease=timedelta(hours=1),
                key_window=timedelta(0),
                worker_id="wrk",
                origin="ord",
                overriding=True,
            )
            Order.objects.filter(effect=effect).update(attempts=1)
        assert claimed is not None
        return self.fresh(effect)

    def second(self, effect: Effect) -> None:
        """The second person agrees to what was ordered about it."""
        request = Approval.objects.get(order__effect=effect, status=ApprovalStatus.PENDING)
        self.agree(request, "I would rather have two than none.")

    def carry_out(self, effect: Effect) -> None:
        for order in Order.objects.filter(effect=effect, status=OrderStatus.DUE):
            orders.execute(order.id)

    def successor_sent(self) -> Effect:
        effect = self.sent_as_new()
        self.second(effect)
        self.carry_out(effect)
        return effect

    def sent_as_new(self) -> Effect:
        effect = self.completed()
        self.order(repeat.send_as_new, effect, "The customer wants the same offer for the second site.")
        return effect

    def compensated(self) -> Effect:
        effect = self.completed()
        payload = {"customer_id": "cus_000003", "amount_minor": 95_000, "currency": "EUR"}
        compensate.compensate(
            self.company.actor("releaser"),
            effect.id,
            effect_type="crm.credit_offer",
            payload=payload,
            reason="One training day was not held.",
            token=f"shots-{next(_numbers)}",
        )
        return effect

    def order(self, command: Callable[..., Order], effect: Effect, reason: str) -> Order:
        return command(
            self.company.actor("releaser"),
            effect.id,
            reason=reason,
            token=f"shots-{next(_numbers)}",
            typed_id=effect.id,
            accepts="If the first mail came after all, two are better than none; I have told the customer.",
        )

    def stop(self) -> Stop:
        return stop_sending.stop_sending(
            self.company.actor("releaser"),
            scope=StopScope.RECEIVER,
            target="desk",
            reason="The desk is being moved to another host until 18:00.",
            token=f"shots-{next(_numbers)}",
        )


def _long_ago(effect_id: str, past: timedelta) -> None:
    """Move what is immutable to the application, too: attempts that ended long ago. By the owner, triggers aside."""
    moved = {
        "effects_effect": ("id", ["created_at"]),
        "effects_effectattempt": ("effect_id", ["started_at", "ended_at"]),
    }
    with psycopg.connect(os.environ["OWNER_DATABASE_URL"]) as owner:
        for table, (key, columns) in moved.items():
            owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            assigned = ", ".join(f"{column} = {column} - %(past)s" for column in columns)
            owner.execute(
                f"UPDATE {table} SET {assigned} WHERE {key} = %(id)s", {"past": past, "id": effect_id}
            )
            owner.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def ask_receiver_where_possible(company: Company, effect: Effect) -> None:
    if effect.dedup != "X":
        ask_receiver(company.actor("operator"), effect.id, token=f"shots-{next(_numbers)}")
