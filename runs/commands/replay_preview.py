"""What a replay would do, node by node, before anything is made: from what the run that it follows did. Only reads.

Every input is one of three classes (recorded fact, repeatable computation, live request); what would become of it in
the chosen mode is one of Fate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Q, TextChoices

from console.kernel.errors import Refusal
from effects.contracts import EffectContract, contracts
from effects.models import Approval, Effect, WouldHave
from effects.states import ApprovalStatus, Asked, EffectStatus, Reversibility
from runs import selectors
from runs.commands.replay import against_simulation
from runs.inspection import state_of
from runs.models import Checkpoint, Message, Recorded, Recording, Run, Step
from runs.states import RunKind, RunMode

#: A preview holds so much of a run.
MAX_ROWS = 400
#: Nodes that did not run in the original are named up to so many.
MAX_REACHABLE = 40
#: Titles that stand in one line; more are counted.
MAX_NAMES = 3


class Fate(TextChoices):
    """What becomes of one thing that a node does or asks for."""

    RECOMPUTED = "recomputed", "Recomputed"
    RECORDED = "recorded", "Recorded"
    ASKED = "asked_live", "Asked live"
    DOUBLED = "doubled", "Doubled"
    PEOPLE = "people", "Asks people"
    SENT = "sent", "Sent for real"
    BLOCKED = "blocked", "Blocked"
    STOPS = "stops", "Stops here"


@dataclass(frozen=True)
class Line:
    """One thing, and what becomes of it."""

    fate: Fate
    what: str
    how: str = ""


@dataclass(frozen=True)
class NodePlan:
    """One node. *ran*: it ran in the original after the checkpoint; else the graph can reach it from there."""

    node: str
    ran: bool
    lines: list[Line]


@dataclass(frozen=True)
class Kept:
    """How much of the original is beside the state; none of it is copied."""

    open_approvals: int
    effects: int
    settled_before: int
    messages: int


@dataclass(frozen=True)
class Preview:
    """What would happen. *refusals*: why the launch would be refused, whoever asks; then nothing is made.

    *blocked*: types that a live replay does not send before a releaser permits them. *sent*: what earlier live
    replays and branches of this lineage already sent. *carried*: effects that were not settled at the checkpoint and
    that no node is known to perform after it.
    """

    checkpoint: Checkpoint
    mode: RunMode
    models_asked: bool
    next_nodes: list[str]
    nodes: list[NodePlan]
    carried: list[Line]
    kept: Kept
    sent: list[Effect]
    blocked: list[str]
    version: str
    workers: int
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def ends(self) -> bool:
        """The graph has ended at this checkpoint: nothing would run."""
        return not self.next_nodes and not self.nodes


def preview(source: Run, checkpoint: Checkpoint, mode: RunMode, *, models_asked: bool = False) -> Preview:
    """Read what a replay of *checkpoint* in *mode* would find. Changes nothing and calls nobody outside."""
    past = _Past(source, checkpoint)
    teller = _Teller(mode, models_asked and mode == RunMode.SIMULATION)
    next_nodes = state_of(checkpoint).next_nodes
    ran = [NodePlan(label, True, teller.of(past.at(label))) for label in past.labels]
    known = {plan.node for plan in ran}
    more = [
        NodePlan(label, False, teller.of_unknown())
        for label in _reachable(source, [*next_nodes, *known], known)
    ]
    types = [effect.effect_type for effect in past.effects if not _is_history(effect, checkpoint)]
    return Preview(
        checkpoint=checkpoint,
        mode=mode,
        models_asked=teller.models_asked,
        next_nodes=next_nodes,
        nodes=ran + more,
        carried=[line for effect in past.carried for line in teller.of_effect(effect, asked=False)],
        kept=kept_of(source, checkpoint),
        sent=sent_by_lineage(source) if mode == RunMode.LIVE else [],
        blocked=_irreversible([*types, *source.workflow.effect_types]) if mode == RunMode.LIVE else [],
        version=str(source.workflow),
        workers=selectors.workers_for(source, mode).count(),
        refusals=against_simulation(source) if mode == RunMode.SIMULATION else [],
    )


def sent_by_lineage(source: Run) -> list[Effect]:
    """What live replays and branches of the same root run have sent, or may have: newest first."""
    launched = (
        Run.objects.filter(root_run=source.root_run_id, mode=RunMode.LIVE)
        .exclude(kind=RunKind.ORIGINAL)
        .values_list("id", flat=True)
    )
    return list(
        Effect.objects.filter(run_id__in=launched, workspace_id=source.workspace_id)
        .filter(Q(status__in=[EffectStatus.COMPLETED, EffectStatus.ACCEPTED]) | Q(unresolved=True))
        .select_related("receiver")
        .defer("answer")
        .order_by("-created_at", "-id")[:MAX_ROWS]
    )


def _irreversible(types: Iterable[str]) -> list[str]:
    known = contracts()
    return [
        one
        for one in dict.fromkeys(types)
        if one in known and known[one].reversibility == Reversibility.IRREVERSIBLE
    ]


def _is_history(effect: Effect, checkpoint: Checkpoint) -> bool:
    """As runs.selectors.inherited_effect tells it: settled before the checkpoint, its result is given back."""
    return effect.settled_at is not None and effect.settled_at <= checkpoint.at


def blocked_types(source: Run) -> list[str]:
    """The irreversible types that the workflow may ask for: a live replay or branch does not send them by itself."""
    return _irreversible(source.workflow.effect_types)


def kept_of(source: Run, checkpoint: Checkpoint) -> Kept:
    """What stays with *source* when a run is made from one of its checkpoints."""
    effects = Effect.objects.filter(run_id=source.id)
    return Kept(
        open_approvals=selectors.run_approvals(source).filter(status=ApprovalStatus.PENDING).count(),
        effects=effects.count(),
        settled_before=effects.filter(settled_at__lte=checkpoint.at).count(),
        messages=Message.objects.filter(run_id=source.id).count(),
    )


# -- what the original did after the checkpoint -----------------------------------------------------------------


@dataclass
class _Doings:
    """What one node did and asked for, through all its goes after the checkpoint."""

    recordings: list[Recording] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    would_have: list[WouldHave] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    messages: int = 0


class _Past:
    """The rows of a run after one of its checkpoints, each with the node that it belongs to."""

    def __init__(self, run: Run, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        after = Q(namespace=checkpoint.namespace, number__gt=checkpoint.number) | (
            ~Q(namespace=checkpoint.namespace) & Q(started_at__gte=checkpoint.at)
        )
        self.steps = list(Step.objects.filter(after, run=run).order_by("started_at", "id")[:MAX_ROWS])
        self.since = min((step.started_at for step in self.steps), default=checkpoint.at)
        self._doings: dict[str, _Doings] = {label_of_step(step): _Doings() for step in self.steps}
        self.effects: list[Effect] = []
        self.carried: list[Effect] = []
        self._read_recordings(run)
        self._read_effects(run)
        self._read_approvals(run)
        self._read_messages(run)

    @property
    def labels(self) -> list[str]:
        return list(self._doings)

    def at(self, label: str) -> _Doings:
        return self._doings.setdefault(label, _Doings())

    def _read_recordings(self, run: Run) -> None:
        rows = Recording.objects.filter(run=run, dropped_at=None, started_at__gte=self.since)
        for row in rows.defer("request", "answer").order_by("started_at", "id")[:MAX_ROWS]:
            self.at(label_of_place(row.place)).recordings.append(row)

    def _read_effects(self, run: Run) -> None:
        rows = (
            Effect.objects.filter(run_id=run.id, workspace_id=run.workspace_id)
            .exclude(command__position__startswith="order:")
            .select_related("command")
            .defer("command__arguments", "answer")
            .prefetch_related("attempts")
        )
        for effect in rows.order_by("created_at", "id")[:MAX_ROWS]:
            if _is_history(effect, self.checkpoint):
                continue
            self.effects.append(effect)
            if effect.created_at >= self.since:
                place = {**effect.command.place, "node": effect.command.node}
                self.at(label_of_place(place)).effects.append(effect)
            elif (label := self._performed_by(effect)) is not None:
                self.at(label).effects.append(effect)
            else:
                self.carried.append(effect)
        intended = WouldHave.objects.filter(run_id=run.id, created_at__gte=self.since)
        for row in intended.defer("payload").order_by("created_at", "id")[:MAX_ROWS]:
            self.at(label_of_place({**row.place, "node": row.node})).would_have.append(row)

    def _performed_by(self, effect: Effect) -> str | None:
        """The node that was at work when it was sent first after the checkpoint."""
        sent = sorted(one.started_at for one in effect.attempts.all() if one.started_at >= self.since)
        return self._at_work(sent[0]) if sent else None

    def _at_work(self, moment: datetime) -> str | None:
        for step in reversed(self.steps):
            if step.started_at <= moment and (step.ended_at is None or moment <= step.ended_at):
                return label_of_step(step)
        return None

    def _read_approvals(self, run: Run) -> None:
        rows = selectors.run_approvals(run).filter(created_at__gte=self.since).defer("body")
        newest: dict[tuple[str, int], Approval] = {}
        for row in rows.order_by("created_at", "round")[:MAX_ROWS]:
            newest[row.interrupt_id, row.action] = row
        for row in newest.values():
            label = next((one for one in self.labels if one.rpartition(" › ")[2] == row.node), row.node)
            self.at(label).approvals.append(row)

    def _read_messages(self, run: Run) -> None:
        posted = Message.objects.filter(run_id=run.id, at__gte=self.since).values_list("at", flat=True)
        for at in posted.order_by("at")[:MAX_ROWS]:
            label = self._at_work(at)
            if label is not None:
                self.at(label).messages += 1


def label_of_step(step: Step) -> str:
    """The node, after the subgraphs it stands in: as the journal names it."""
    above = [segment.split(":")[0] for segment in step.namespace.split("|") if segment]
    return " › ".join([*above, step.node])


def label_of_place(place: dict[str, Any]) -> str:
    """The same for the place of a recording or a command, whose namespaces end with its own task."""
    names = [str(segment[0]) for segment in place.get("namespaces") or []]
    return " › ".join([*names[:-1], str(place.get("node", ""))])


def _reachable(run: Run, begin: Sequence[str], known: set[str]) -> list[str]:
    """The nodes that the graph can come to from *begin* and that did not run after the checkpoint, in its order."""
    edges = run.workflow.topology.get("edges", [])
    at, seen, found = list(begin), set(begin), [node for node in begin if node not in known]
    while at and len(found) < MAX_REACHABLE:
        here = at.pop(0)
        for edge in edges:
            target = _label_of_drawn(edge["target"])
            if _label_of_drawn(edge["source"]) != here or target in seen or target.startswith("__"):
                continue
            seen.add(target)
            at.append(target)
            if target not in known:
                found.append(target)
    return [node for node in found if not node.rpartition(" › ")[2].startswith("__")]


def _label_of_drawn(node: object) -> str:
    """A node as the drawn graph names it: those of a subgraph after a colon."""
    return str(node).replace(":", " › ")


# -- what would become of it --------------------------------------------------------------------------------------

_OWN_CODE = Line(Fate.RECOMPUTED, "its own code", "runs again on the state that it finds")


@dataclass(frozen=True)
class _Teller:
    """Says of each thing what one mode makes of it: product.md, The commands, 2."""

    mode: RunMode
    models_asked: bool

    def of(self, doings: _Doings) -> list[Line]:
        """Everything that one node did."""
        lines = [_OWN_CODE]
        for kind in Recorded:
            calls = [row for row in doings.recordings if row.kind == kind]
            if calls:
                lines.append(self._of_calls(kind, calls))
        asked = {row.effect_id for row in doings.approvals if row.effect_id}
        intended = {row.would_have_id for row in doings.approvals if row.would_have_id}
        for effect in doings.effects:
            lines += self.of_effect(effect, asked=effect.id in asked)
        for row in doings.would_have:
            lines += self._doubled(row.effect_type, row.recipient, asked=row.id in intended)
        lines += [line for row in doings.approvals for line in self._of_approval(row)]
        return lines + ([self._of_messages(doings.messages)] if doings.messages else [])

    def of_unknown(self) -> list[Line]:
        """A node that has not run after this checkpoint: nobody knows what it asks for."""
        if self.mode == RunMode.EVIDENCE:
            return [
                _OWN_CODE,
                Line(
                    Fate.STOPS, "anything it asks for", "was never recorded here: the run stops as diverged"
                ),
            ]
        if self.mode == RunMode.SIMULATION:
            models = (
                [Line(Fate.ASKED, "models", "answer live")]
                if self.models_asked
                else [Line(Fate.STOPS, "a model", "was never asked here: the run stops where one is")]
            )
            return [
                _OWN_CODE,
                *models,
                Line(
                    Fate.DOUBLED,
                    "effects and tools",
                    "their doubles answer; a tool without one stops the run",
                ),
            ]
        return [
            _OWN_CODE,
            Line(Fate.ASKED, "models, tools and facts", "whatever it asks for is asked live"),
            Line(Fate.PEOPLE, "effects", "each needs a fresh approval; irreversible types are blocked"),
        ]

    def _of_calls(self, kind: Recorded, calls: Sequence[Recording]) -> Line:
        names = _names(call.name for call in calls)
        if kind == Recorded.MODEL:
            what = f"{_count(len(calls), 'model answer')} ({names})"
            if self.mode == RunMode.LIVE or self.models_asked:
                return Line(Fate.ASKED, what, "the model is asked anew and may answer otherwise")
            return Line(Fate.RECORDED, what, "given back from the recording; no model is asked")
        noun = "tool result" if kind == Recorded.TOOL else "fact"
        what = f"{_count(len(calls), noun)} ({names})"
        if self.mode == RunMode.LIVE:
            return Line(Fate.ASKED, what, "read anew" if kind == Recorded.FACT else "the tool is asked anew")
        if self.mode == RunMode.EVIDENCE:
            return Line(Fate.RECORDED, what, "given back from the recording; nobody is asked")
        other = (
            "another one is read now"
            if kind == Recorded.FACT
            else "something else gets the tool's double, and without one the run stops"
        )
        return Line(Fate.RECORDED, what, f"given back where the same is asked; {other}")

    def of_effect(self, effect: Effect, *, asked: bool) -> list[Line]:
        """An effect of the original that was not settled at the checkpoint. *asked*: an approval of it is told too."""
        what = f"{effect.effect_type} to {effect.recipient}" if effect.recipient else effect.effect_type
        if self.mode == RunMode.EVIDENCE:
            return [self._evidence(effect, what)]
        if self.mode == RunMode.SIMULATION:
            return self._doubled(effect.effect_type, effect.recipient, asked=asked)
        was, promise = _in_the_original(effect), _contract(effect.effect_type)
        reversibility = promise.reversibility if promise else effect.reversibility
        if reversibility == Reversibility.IRREVERSIBLE:
            return [
                Line(
                    Fate.BLOCKED,
                    what,
                    f"cannot be undone: the run fails here until a releaser permits this type on its page; "
                    f"then it needs a fresh approval. {was}",
                )
            ]
        return [
            Line(
                Fate.SENT, what, f"under an id of its own, after a fresh approval whatever the policy. {was}"
            )
        ]

    def _evidence(self, effect: Effect, what: str) -> Line:
        if effect.status == EffectStatus.PENDING:
            return Line(Fate.STOPS, what, "has no recorded result: the recording ends here")
        said = "result" if effect.status != EffectStatus.FAILED else "end"
        return Line(Fate.RECORDED, what, f"its recorded {said} is given back; nothing is sent")

    def _doubled(self, effect_type: str, recipient: str, *, asked: bool) -> list[Line]:
        what = f"{effect_type} to {recipient}" if recipient else effect_type
        promise = _contract(effect_type)
        if promise is None or promise.double is None:
            return [
                Line(Fate.BLOCKED, what, "no double: its contract declares none, so nothing would answer")
            ]
        lines = [Line(Fate.DOUBLED, what, "its double answers; nothing is sent and no effect is made")]
        if promise.asking is not None and not asked:
            lines.append(_ASKED_OF_YOU)
        return lines

    def _of_approval(self, approval: Approval) -> list[Line]:
        what = f"“{approval.title}”"
        if self.mode == RunMode.EVIDENCE:
            if approval.status != ApprovalStatus.DECIDED:
                return [Line(Fate.STOPS, what, "nobody has decided it: the recording ends here")]
            how = f"the recorded decision is given back ({approval.ended_why})" if approval.ended_why else ""
            return [Line(Fate.RECORDED, what, how or "the recorded decision is given back")]
        if self.mode == RunMode.SIMULATION:
            return [Line(Fate.PEOPLE, what, _ASKED_OF_YOU.how)]
        if approval.effect_id and approval.asks != Asked.ACTION:
            return []  # said with its effect, which always asks
        return [
            Line(
                Fate.PEOPLE,
                what,
                f"asked of {approval.asked_of or 'any approver'} afresh; what was decided counts for the original alone",
            )
        ]

    def _of_messages(self, count: int) -> Line:
        what = _count(count, "message") + " to the conversation"
        return {
            RunMode.EVIDENCE: Line(
                Fate.RECORDED, what, "compared with what was posted then; nothing is posted"
            ),
            RunMode.SIMULATION: Line(
                Fate.DOUBLED, what, "kept on the new run's page alone; the customer sees nothing"
            ),
            RunMode.LIVE: Line(Fate.SENT, what, "posted again, by the new run: the customer sees it"),
        }[self.mode]


_ASKED_OF_YOU = Line(
    Fate.PEOPLE,
    "its approval",
    "asked of you alone, whatever your roles; it grants nothing and nobody is mailed",
)


def _contract(effect_type: str) -> EffectContract | None:
    return contracts().get(effect_type)


def _in_the_original(effect: Effect) -> str:
    """What became of the original's own, so that nobody takes the new one for it."""
    reference = f" ({effect.provider_reference})" if effect.provider_reference else ""
    if effect.status == EffectStatus.COMPLETED:
        return f"The original's was sent{reference}: this would be a second one."
    if effect.status == EffectStatus.ACCEPTED:
        return f"The original's was accepted{reference}: this would be a second one."
    if effect.unresolved:
        return "The original's may have been sent: this would be a second one."
    return "The original's was not sent."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _names(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(name for name in names if name))
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    return ", ".join(found[:MAX_NAMES]) + more
