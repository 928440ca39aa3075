"""`manage.py make_docs`: write the documents that say what the modules say: states, roles, commands, ready-made contracts.

A test compares the files with the text that is made here: whoever adds a state, a role or a contract runs this command.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db.models import TextChoices

from console.kernel import words
from console.management.commands._commands_doc import command_sections
from console.models import bulk
from console.models.roles import HOLDERS, Capability, Role
from effects import states as effects
from effects.catalogue.listed import READY, Ready
from effects.contracts import EffectContract
from runs import states as runs

MADE_FROM = "This file is made from {modules} by `manage.py make_docs`; change them, not it."


class Command(BaseCommand):
    help = "Write docs/states.md, roles.md, commands.md and catalogue.md from the modules that they describe."

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        for name, text in documents().items():
            (settings.BASE_DIR / "docs" / name).write_text(text)
            self.stdout.write(f"docs/{name}")


def documents() -> dict[str, str]:
    """Each document's name in docs/ and its whole text."""
    return {
        "states.md": states(),
        "roles.md": roles(),
        "commands.md": commands(),
        "catalogue.md": catalogue(),
    }


def states() -> str:
    return document(
        "States",
        MADE_FROM.format(modules="`runs/states.py` and `effects/states.py`"),
        "Where a run, an effect and everything beside them can stand. Rows hold the code, pages say the word.",
        *run_sections(),
        *effect_sections(),
    )


def run_sections() -> Iterable[str]:
    yield "## Runs"
    yield table(
        ("code", "pages say", "no worker is on it; rows wake it", "needs a person", "final"),
        (
            (code(one), said(one, "run"), *marks(one, runs.WAITING, runs.NEEDS_A_PERSON, runs.FINAL))
            for one in runs.RunStatus
        ),
    )
    yield "### Why a run failed"
    yield table(
        ("code", "means", "pages say"),
        ((code(one), str(one.label), words.failure_sentence(one.value)) for one in runs.Failure),
    )
    for title, choices in (
        ("Kinds of runs", runs.RunKind),
        ("Modes", runs.RunMode),
        ("Executions: why one began", runs.Cause),
        ("Executions: how one ended", runs.ExecutionOutcome),
        ("Steps: how one ended", runs.StepOutcome),
        ("Pauses: what one is", runs.PauseKind),
        ("Inputs: their classes", runs.InputClass),
    ):
        yield from listed(title, choices)


def effect_sections() -> Iterable[str]:
    yield "## Effects"
    yield "A status and, within it, a sub-state that says what is going on."
    yield table(
        ("status", "sub-state", "pages say", "surely unsent", "may have reached the receiver"),
        (
            (
                code(status),
                code(sub) if sub.value else "",
                said(sub if sub.value else status, "effect"),
                *marks(sub, effects.UNSENT, effects.UNRESOLVED_IN),
            )
            for status, subs in effects.SUB_STATES.items()
            for sub in subs
        ),
    )
    yield "### Moves"
    yield (
        "A trigger refuses every other move, to everybody. Moves with a star are made only under an open review, by a "
        "person with evidence; so is completing what was never tried."
    )
    yield table(("from", "to"), (move_row(was, allowed) for was, allowed in effects.MOVES.items()))
    yield from listed("Attempts: how one stands", effects.Outcome, "attempt")
    yield from listed("Reversibility", effects.Reversibility)
    yield from listed("How a receiver tells repeats (dedup)", effects.Dedup)
    yield "### Reviews: why one is open"
    yield table(
        ("code", "means", "pages say"),
        (
            (code(one), str(one.label), words.REVIEW_REASONS.get(one.value, ""))
            for one in effects.ReviewReason
        ),
    )
    yield from listed("Reviews: what one is settled as", effects.ReviewOutcome)
    yield from listed("Orders: what a person may order", effects.OrderKind)
    yield from listed("Orders: where one stands", effects.OrderStatus, "order")
    yield from listed("Kill switch: what it stops", effects.StopScope)
    yield from listed("Bulk recover: where one stands", bulk.BulkStatus, "recovery")
    yield from listed("Bulk recover: what it would do with an effect", effects.Verdict)
    yield from listed("Bulk recover: where an effect of it stands", bulk.ItemState)
    yield from listed("Orphan scans: where one stands", effects.ScanStatus, "scan")
    yield "## Approvals"
    yield from listed("Where one stands", effects.ApprovalStatus, "approval")
    yield from listed("What one asks about", effects.Asked)
    yield from listed("Decisions", effects.Decision, "approval")


def roles() -> str:
    return document(
        "Roles",
        MADE_FROM.format(modules="`console/models/roles.py`"),
        "Who may do what in a workspace. A person may hold several roles; four eyes still means two people.",
        table(
            ("may", *(str(role.label) for role in Role)),
            (
                (str(one.label), *("yes" if role in HOLDERS[one] else "" for role in Role))
                for one in Capability
            ),
        ),
    )


def commands() -> str:
    return document(
        "Commands",
        MADE_FROM.format(modules="`runs/availability.py` and `console/models/roles.py`"),
        "What an operator may do with a run, and for each command that is not offered the reason, as the page says it on "
        "the disabled lever, the API in its answer and the command when it refuses. Want of a role comes first: "
        "then the reason names the right that is missing. `go` is no reason: the command is offered.",
        "Beside the tables: what executes the workflow (Continue, Ask again, settling a dropped effect, replays and "
        "branches) is not offered while living workers hold only other versions of it than the run was made with; the "
        "reason names both.",
        *command_sections(table),
    )


def catalogue() -> str:
    return document(
        "Ready-made contracts",
        MADE_FROM.format(modules="`effects/catalogue/`"),
        "What each effect type promises, and what of it the provider documents: where, and when that was read. What is "
        "not documented is taken for the worst. How to use one, and how to write your own: [contracts.md](contracts.md).",
        *(part for ready in READY for part in ready_sections(ready)),
    )


def ready_sections(ready: Ready) -> Iterable[str]:
    yield f"## {ready.provider}"
    yield f"`{ready.naming}`"
    yield table(
        (
            "type",
            "repeats are known by",
            "a key is relied on for",
            "not found proves absence",
            "reversibility",
            "who decides sees what is there now",
        ),
        (promise_row(contract) for contract in ready.contracts),
    )
    yield table(
        ("documented", "where", "read"),
        ((fact.says, f"<{fact.source}>", fact.checked.isoformat()) for fact in ready.facts),
    )


def promise_row(contract: EffectContract) -> Sequence[str]:
    return (
        f"`{contract.type}`",
        f"{effects.Dedup(contract.dedup).label} ({contract.dedup})",
        relied_on(contract) if contract.dedup == effects.Dedup.KEY else "",
        "yes" if contract.authoritative else "no",
        str(effects.Reversibility(contract.reversibility).label),
        "yes" if contract.preview else "no",
    )


def relied_on(contract: EffectContract) -> str:
    minutes = int(contract.key_window.total_seconds() // 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes > 0 else "no time"


def move_row(was: effects.Pair, allowed: Sequence[effects.Pair]) -> Sequence[str]:
    starred = {to for source, to in effects.ONLY_UNDER_REVIEW if source == was}
    return (
        pair_code(was),
        ", ".join(f"{pair_code(to)}{'*' if to in starred else ''}" for to in allowed) or "none: it is final",
    )


def pair_code(pair: effects.Pair) -> str:
    status, sub = pair
    return f"`{status.value}/{sub.value}`" if sub.value else f"`{status.value}`"


def listed(title: str, choices: type[TextChoices], word_table: str = "") -> Iterable[str]:
    yield f"### {title}"
    yield table(
        ("code", "pages say" if word_table else "means"),
        ((code(one), said(one, word_table) if word_table else str(one.label)) for one in choices),
    )


def code(one: TextChoices) -> str:
    return f"`{one.value}`"


def said(one: TextChoices, word_table: str) -> str:
    return words.word(one.value, word_table).text


def marks(one: TextChoices, *sets: Sequence[TextChoices]) -> list[str]:
    return ["yes" if one in among else "" for among in sets]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [row(heads), "|" + "---|" * len(heads), *(row(cells) for cells in rows)]
    return "\n".join(lines)


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def document(title: str, *parts: str) -> str:
    return "\n\n".join((f"# {title}", *parts)) + "\n"
