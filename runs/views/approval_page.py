"""Everything one approval's page shows: the question, its facts, what may be done with it and by whom, what became of it."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from datetime import timedelta

from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone

from console.access import Actor
from console.kernel.canonical import JSONValue
from console.kernel.crypto import Undecryptable
from console.kernel.masking import mask
from effects import rounds, selectors
from effects.contracts import EffectContract
from effects.forms import AnswerForm, DecisionForm, JsonForm, SchemaForm, answer_form
from effects.models import Approval, ApprovalDecision, Effect, Order, Review
from effects.states import ApprovalStatus, Asked, Decision, EffectStatus, OrderKind
from effects.views.comparison import Comparison
from effects.views.payload import Sheet, readable, sheet
from effects.views.telling import act_of, object_of, promise_of, risk
from runs.commands.read_approval import is_open, read_approval, whole_of, why_not
from runs.models import Direction, Message, Run

_DEFAULT_DESCRIPTION = "Tool execution requires approval\n\nTool: "


@dataclass(frozen=True)
class Change:
    """One field that an edit changed, as the difference table shows it."""

    path: str
    before: JSONValue
    after: JSONValue
    kind: str = "changed"


@dataclass
class Forms:
    """The page's forms. Those that came back with a problem carry what was typed."""

    decision: DecisionForm = field(default_factory=lambda: DecisionForm(auto_id="decide_%s"))
    fresh: DecisionForm = field(default_factory=lambda: DecisionForm(auto_id="decide_%s"))
    editing: DecisionForm = field(default_factory=lambda: DecisionForm(auto_id="edit_%s"))
    edit: SchemaForm | None = None
    raw: JsonForm | None = None
    answer: SchemaForm | AnswerForm | None = None


@dataclass
class ApprovalPage:
    """What the template shows. *refusal* says why this person has no verbs; *sheet* is masked for them."""

    actor: Actor
    approval: Approval
    run: Run
    promise: EffectContract | None
    refusal: str
    open: bool
    sheet: Sheet | None
    unreadable: bool = False
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def effect(self) -> Effect | None:
        return self.approval.effect

    @property
    def may_decide(self) -> bool:
        return self.open and not self.refusal

    @property
    def has_preview(self) -> bool:
        """Whether the contract says how to look at what the receiver has now."""
        return self.promise is not None and self.promise.preview is not None

    @property
    def may_grant(self) -> bool:
        """Whether approve and edit are offered: only on what stands on the page in whole."""
        return self.may_decide and not self.unreadable and (self.sheet is None or self.sheet.is_whole)

    @property
    def allows(self) -> dict[str, bool]:
        """Each verb, whether this person is offered it."""
        grants = (Decision.APPROVE, Decision.EDIT)
        return {
            verb.value: verb in self.approval.allows
            and (self.may_grant if verb in grants else self.may_decide)
            for verb in Decision
        }

    @property
    def state(self) -> str:
        """The approval's status as people see it: expired the second it is, overdue before that."""
        if self.approval.status != ApprovalStatus.PENDING:
            return str(self.approval.status)
        if not self.open:
            return "expired"
        return "overdue" if self.approval.due_at <= timezone.now() else "pending"

    @property
    def why(self) -> str:
        """The agent's own words on why. An action's may quote its arguments, so they are for those who may read them.

        LangChain's default says no why: it repeats the call, which stands on the page already.
        """
        if self.approval.asks == Asked.ACTION and not self.may_decide:
            return ""
        said, _, _ = self.approval.why.partition(_DEFAULT_DESCRIPTION)
        return said.strip()

    @property
    def risk(self) -> str:
        return risk(self.effect) if self.effect else ""

    @property
    def order(self) -> Order | None:
        """The order that it is the second person's say about; None for what a run asks."""
        return self.approval.order

    @property
    def on_approval(self) -> str:
        """What an order's approval sends, in words."""
        if self.order is None or self.effect is None:
            return ""
        receiver = self.effect.receiver.name
        two = self.order.effect.status == EffectStatus.COMPLETED
        return {
            OrderKind.DELIVER_AGAIN: f"Exactly the bytes below go to {receiver} once more, with the same id and key.",
            OrderKind.SEND_AS_NEW: f"A second effect goes to {receiver}: the bytes below, with an id and a key of its own."
            + (f" {receiver} has the first one: afterwards there are two." if two else ""),
            OrderKind.COMPENSATE: f"The effect below, one of its own, goes to {receiver} and takes that one back.",
        }[OrderKind(self.order.kind)]

    @property
    def approve_words(self) -> str:
        if self.approval.simulated_for_id:
            return "Approve in the simulation"
        if self.promise is None:
            return "Approve"
        it = object_of(self.promise.title)
        return {
            "": f"Approve and {act_of(self.promise.title)}",
            OrderKind.DELIVER_AGAIN: f"Approve and deliver {it} again",
            OrderKind.SEND_AS_NEW: f"Approve and send {it} as a new effect",
            OrderKind.COMPENSATE: f"Approve and {act_of(self.promise.title)}",
        }[OrderKind(self.order.kind) if self.order else ""]

    @property
    def is_recent(self) -> bool:
        """Whether a time of day says when it ended."""
        ended = self.approval.ended_at
        return ended is not None and timezone.now() - ended < timedelta(hours=18)

    @property
    def short_hash(self) -> str:
        return self.approval.payload_hash.removeprefix("sha256:")[:12]


def approval_page(actor: Actor, approval: Approval, run: Run, *, reading: bool) -> ApprovalPage:
    """The page's facts. *reading* says that the person is about to see them: reading protected fields is recorded."""
    promise = promise_of(approval.effect.effect_type) if approval.effect else None
    refusal, still_open = why_not(actor, approval, run), is_open(approval)
    shows_all = reading and still_open and not refusal
    page = ApprovalPage(actor, approval, run, promise, refusal, still_open, None)
    try:
        payload = read_approval(actor, approval, run) if shows_all else masked(approval)
    except Undecryptable:
        page.unreadable = True
    else:
        page.sheet = _sheet(approval, promise, payload)
    return page


def masked(approval: Approval) -> JSONValue:
    """What is asked about, as those see it who may not see protected fields."""
    if approval.effect is not None:
        return selectors.revision_of(approval.effect, approval.revision).shown  # type: ignore[no-any-return]
    if approval.would_have is not None:
        return approval.would_have.shown  # type: ignore[no-any-return]
    return _every_value_masked(whole_of(approval))


def _every_value_masked(value: JSONValue) -> JSONValue:
    """The names alone. No contract says what is protected here, so all of it counts as protected."""
    if isinstance(value, dict):
        return mask(value, ("*",))
    covered = mask({"value": value}, ("value",))
    return covered["value"] if isinstance(covered, dict) else None


def _sheet(approval: Approval, promise: EffectContract | None, payload: JSONValue) -> Sheet | None:
    if approval.asks == Asked.QUESTION:
        said = frozenset({"question", "title", "message", "group"})
        left = {k: v for k, v in payload.items() if k not in said} if isinstance(payload, dict) else {}
        return sheet(left) if left else None
    without = frozenset({promise.recipient}) if promise else frozenset()
    return sheet(payload, promise.schema if promise else None, without=without)


def comparison_of(page: ApprovalPage) -> Comparison | None:
    """What stands for the comparison with what is there now: for who may decide it, where the contract has a preview."""
    if page.effect is None or not page.has_preview or not page.may_decide:
        return None
    action = reverse("approval_preview", args=[page.approval.workspace_id, page.approval.id])
    return Comparison(action, page.effect, revision=page.approval.revision)


def recipient_of(page: ApprovalPage) -> str:
    """Who it goes to: whole for who may see it, else as the contract shows it."""
    if page.effect is None:
        return ""
    tree = page.sheet.tree if page.sheet else None
    if page.promise and isinstance(tree, dict) and page.may_decide and page.promise.recipient_of(tree):
        return page.promise.recipient_of(tree)
    return selectors.revision_of(page.effect, page.approval.revision).recipient


def forms_of(page: ApprovalPage) -> Forms:
    """Fresh forms for the verbs that this person is offered."""
    forms = Forms()
    if page.allows["edit"]:
        forms.edit, forms.raw = (
            edit_form(page.approval),
            JsonForm(initial={"json": _as_text(whole_of(page.approval))}),
        )
    if page.allows["respond"]:
        forms.answer = answer_form(page.approval.answer_schema)
    return forms


def edit_form(approval: Approval, data: object = None) -> SchemaForm:
    """The form of an edit: the arguments that there are, typed by the contract's schema or by their values."""
    promise = promise_of(approval.effect.effect_type) if approval.effect else None
    before = whole_of(approval)
    given = before if isinstance(before, dict) else {}
    return SchemaForm(promise.schema if promise else {}, data, given=given, only=frozenset(given))


def _as_text(value: JSONValue) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def changes_of(page: ApprovalPage) -> list[Change]:
    """What the edit changed that this request is the second look at; empty for a first request."""
    before = edited_before(page.approval) if page.approval.round > 1 else None
    if before is None or page.sheet is None:
        return []
    old, new = readable(whole_of(before) if page.may_decide else masked(before)), page.sheet.tree
    if not isinstance(old, dict) or not isinstance(new, dict):
        return []
    return [Change(name, old.get(name), new.get(name)) for name in new if old.get(name) != new.get(name)]


def edited_before(approval: Approval) -> Approval | None:
    """The request of the round before, where a person edited it and so asked for this one."""
    return (
        same_pause(approval)
        .filter(round=approval.round - 1, decisions__decision=Decision.EDIT)
        .select_related("effect")
        .first()
    )


def asked_again(approval: Approval) -> Approval | None:
    """The next round's request, where there is one."""
    return same_pause(approval).filter(round=approval.round + 1).first()


def same_pause(approval: Approval) -> QuerySet[Approval]:
    return Approval.objects.filter(
        run_id=approval.run_id, interrupt_id=approval.interrupt_id, action=approval.action
    )


def decision_of(approval: Approval) -> ApprovalDecision | None:
    return approval.decisions.select_related("by").order_by("id").last()


def last_message(run: Run) -> Message | None:
    """What the customer wrote last, in the run's conversation."""
    if run.conversation is None:
        return None
    return run.conversation.messages.filter(direction=Direction.INBOUND).order_by("-at").first()


def next_of(actor: Actor, approval: Approval) -> Approval | None:
    """The most urgent request that waits for *actor* besides this one."""
    return selectors.inbox(actor).exclude(id=approval.id).first()


def in_review(effect_ids: list[str]) -> frozenset[str]:
    """Of these effects, those that a person has to settle."""
    found = Review.objects.filter(effect_id__in=effect_ids, closed_at__isnull=True)
    return frozenset(one for one in found.values_list("effect_id", flat=True) if one)


def words_of(decision: ApprovalDecision) -> str:
    """“Approved by Mara”."""
    return rounds.decided(Decision(decision.decision), decision.by.name if decision.by else "the system")
