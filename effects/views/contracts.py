"""What each effect type promises, where its facts come from, and when it was probed with what verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.access import Actor
from console.kernel.errors import NotFound
from console.pages import in_workspace
from effects.contracts import EffectContract, contracts
from effects.models import Probe, Receiver, Standing
from effects.selectors import newest_probes
from effects.states import Dedup, Reversibility
from effects.views.section import section_of
from effects.views.telling import dedup_words, in_words
from effects.wires import HttpWire


@dataclass(frozen=True)
class Row:
    """A contract, the workspace's receiver for it, and its newest probe there."""

    promise: EffectContract
    receiver: Receiver | None
    probe: Probe | None

    @property
    def probed(self) -> str:
        """The verdict as one code: passed, failed, outdated (another version or account), never, or nowhere."""
        if self.receiver is None:
            return "nowhere"
        if self.probe is None:
            return "never"
        current = (self.promise.version, self.receiver.account)
        if (self.probe.contract_version, self.probe.account) != current:
            return "outdated"
        return "passed" if self.probe.passed else "failed"

    @property
    def follows(self) -> str:
        """What the verdict means for sending, in a sentence."""
        if self.receiver is None:
            return f"Nothing is sent: there is no live receiver {self.promise.receiver} in this workspace."
        if self.promise.dedup in (Dedup.QUERY, Dedup.NONE):
            return "Never sent again by itself, whatever a probe shows."
        if self.probed == "passed":
            return "May be sent again by itself, as its promise allows."
        return "Sent once, and not again by itself: a person decides."

    @property
    def can_be_probed(self) -> bool:
        """There is a harmless object, and a receiver here to try it at."""
        return self.promise.harmless is not None and self.receiver is not None

    @property
    def cases(self) -> list[dict[str, Any]]:
        """The newest probe case by case: what was tried, whether it passed, what was seen."""
        if self.probe is None:
            return []
        return [
            {
                "name": case.get("title") or str(case["name"]).replace("_", " "),
                "passed": case["passed"],
                "seen": case.get("seen", ""),
            }
            for case in self.probe.cases
        ]


@require_safe
@in_workspace()
def contract_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Every contract of the deployment, as it stands in this workspace."""
    context = {**section_of(actor, "contracts"), "rows": [(row, says(row.promise)) for row in rows_of(actor)]}
    return render(request, "contracts/list.html", context)


@require_safe
@in_workspace()
def contract_page(request: HttpRequest, actor: Actor, effect_type: str) -> HttpResponse:
    """One contract: its promises in plain words, its facts with their sources, its probe case by case."""
    row = next((one for one in rows_of(actor) if one.promise.type == effect_type), None)
    if row is None:
        raise NotFound(f"There is no contract for the effect type {effect_type}.")
    context = {
        **section_of(actor, "contracts"),
        "row": row,
        "says": says(row.promise),
        "promises": promises_of(row.promise),
    }
    return render(request, "contracts/contract.html", context)


def rows_of(actor: Actor) -> list[Row]:
    receivers = {
        one.name: one for one in Receiver.objects.filter(workspace=actor.workspace, standing=Standing.LIVE)
    }
    probes = newest_probes(actor)
    found = []
    for promise in sorted(contracts().values(), key=lambda one: one.type):
        receiver = receivers.get(promise.receiver)
        found.append(Row(promise, receiver, probes.get((receiver.id, promise.type)) if receiver else None))
    return found


def says(promise: EffectContract) -> str:
    """How its receiver tells a repeat from a new request, in a sentence."""
    return dedup_words(promise.dedup)


def promises_of(promise: EffectContract) -> list[tuple[str, str]]:
    """Each promise, by its name and in plain words. What is not promised is said, too."""
    return [(name, words) for name, words in _promises(promise) if words]


def _promises(promise: EffectContract) -> list[tuple[str, str]]:
    wire = promise.wire
    asked = isinstance(wire, HttpWire) and wire.look_up is not None
    return [
        ("Can it be undone?", Reversibility(promise.reversibility).label),
        ("When an answer is lost", _when_lost(promise, asked=asked)),
        ("Key window", _window(promise)),
        ("Look-up", _look_up(promise, asked=asked)),
        ("One delivery takes at most", in_words(promise.deadline)),
        (
            "When nothing could be sent",
            f"Tried {promise.tries} times within {in_words(promise.give_up)}, then held.",
        ),
        (
            "Final result",
            "With the answer."
            if promise.synchronous
            else f"Later: accepted first, expected within {in_words(promise.final_within)}.",
        ),
        ("Approval", _approval(promise)),
        (
            "Preview",
            "Who decides sees what the receiver has now, against what would be sent."
            if promise.preview
            else "None: what the receiver has now is not shown to who decides.",
        ),
        ("Protected fields", ", ".join(promise.mask) or "None."),
        (
            "Compensation",
            f"Takes back {promise.compensates.type}, never more than it." if promise.compensates else "",
        ),
        ("In a simulation", "A double answers." if promise.double else "Can't be simulated: no double."),
        ("Probe", "" if promise.harmless else "Can't be probed: it declares no harmless object."),
    ]


def _when_lost(promise: EffectContract, *, asked: bool) -> str:
    return {
        Dedup.KEY: "The same key with the same bytes goes again, inside the key's window.",
        Dedup.NATURAL: "The receiver is asked first; it is sent again only when it is proven absent.",
        Dedup.QUERY: "The receiver is asked, several times; then a person decides.",
        Dedup.NONE: "The receiver is asked; a person decides."
        if asked
        else "A person decides: nobody can be asked.",
    }[promise.dedup]


def _window(promise: EffectContract) -> str:
    if promise.dedup != Dedup.KEY:
        return ""
    if not promise.retention:
        return "None published, so none is relied on: nothing is sent a second time by itself."
    seconds = max(0.0, promise.key_window.total_seconds())
    return f"{in_words(seconds)}, from a published retention of {in_words(promise.retention)}."


def _look_up(promise: EffectContract, *, asked: bool) -> str:
    if not asked:
        return "None: the receiver can't be asked."
    behind = f"It may lag {in_words(promise.settle)} behind."
    if not promise.authoritative:
        return f"Finding it proves that it is there; not finding it proves nothing. {behind}"
    looks = "One look" if promise.looks == 1 else f"{promise.looks} looks in a row"
    return f"{looks} that did not find it prove that it is not there. {behind}"


def _approval(promise: EffectContract) -> str:
    if promise.asking is None:
        return "None is asked, unless the workflow asks."
    whom = promise.asking.group or "Any approver"
    return f"{whom}; the grant counts for {in_words(promise.asking.grant)}."
