"""The machine: one example is one database transaction in which everything happens that may, in any order.

What runs is the product's ledger; what it meets is the model receiver, the clock that this test moves, and kills. A
group of rules is a mixin of :class:`Core`; `tests.model.ledger` puts them together. To add a rule: run the
product's code in :meth:`Core.errand` (or :meth:`Core.command` for a person's request), say in words what happened,
and teach :mod:`tests.model.judge` what must hold of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar
from unittest import mock

from django.db import connection, transaction
from hypothesis import stateful
from hypothesis.stateful import RuleBasedStateMachine, invariant
from hypothesis.strategies import SearchStrategy

from console import doorbell
from console.access import Actor
from console.kernel.errors import Refusal
from effects.contracts import contract
from effects.models import Effect
from effects.origin import Origin, OriginLost
from effects.states import Dedup
from tests.model.clock import Clock, governs
from tests.model.errands import Errand, Stop, counted_statements
from tests.model.faults import Fault, View
from tests.model.figures import BETWEEN, Figures
from tests.model.judge import Judge, Wrong, require
from tests.model.outside import Outside, stands_for_the_network
from tests.model.promises import CONTRACTS
from tests.model.rows import Reading
from tests.people import World

__all__ = ["Core", "Intent", "ModelRun"]


#: A rule's name and what was drawn for it: enough to make the step again.
Step = tuple[str, dict[str, Any]]
Rule = Callable[..., None]


def rule(**drawn: SearchStrategy[Any]) -> Callable[[Rule], Rule]:
    """Something that may happen in a step: Hypothesis's rule, that the machine remembers having made."""
    return lambda function: stateful.rule(**drawn)(_remembered(function))  # type: ignore[call-overload]


def first(**drawn: SearchStrategy[Any]) -> Callable[[Rule], Rule]:
    """What happens before anything else, remembered too."""
    return lambda function: stateful.initialize(**drawn)(_remembered(function))  # type: ignore[call-overload]


def _remembered(function: Rule) -> Rule:
    @wraps(function)
    def made(machine: Core, **drawn: Any) -> None:
        machine.steps.append((function.__name__, drawn))
        function(machine, **drawn)

    return made


@dataclass
class ModelRun(Origin):
    """What the ledger needs of an execution. *over*: nobody works on the run any more, in words."""

    workspace_id: str = ""
    run_id: str = ""
    customer_ref: str = "cus_000009"
    name: str = "exe_of_the_model"
    worker_id: str = "wrk_of_the_model"
    over: str = ""

    def hold(self) -> None:
        if self.over:
            raise OriginLost(f"the run was {self.over}")

    def check_permitted(self) -> None:
        return


@dataclass
class Intent:
    """One command of a run, as its node would make it again. *called*: its name in the story."""

    called: str
    effect_id: str
    effect_type: str
    run: ModelRun
    key: str
    amount: int
    changes: int = 0


@dataclass
class Setting:
    """What all examples share: the committed workspace, its people, and the figures."""

    world: World
    people: dict[str, Actor]
    figures: Figures
    #: The address at which the receivers' webhooks come in.
    hook_id: str = ""
    #: Of several processes that play at once, each has run ids of its own.
    share: int = 0


class Core(RuleBasedStateMachine):
    """The world of one example, and how anything in it is done."""

    #: Set by the test before the machine runs.
    setting: ClassVar[Setting]
    #: The types of the effects that its runs ask for.
    kinds: ClassVar[tuple[str, ...]] = tuple(one.type for one in CONTRACTS if one.compensates is None)
    intents_at_most: ClassVar[int] = 20
    sendable_at_most: ClassVar[int] = 3
    #: The steps of the last example that failed.
    failed: ClassVar[list[Step]] = []

    def __init__(self) -> None:
        super().__init__()
        self.figures = self.setting.figures
        self.figures.examples += 1
        self.clock = Clock()
        self.outside = Outside(self.clock)
        self.workspace_id = self.setting.world.workspace.id
        reading = Reading(self.workspace_id)
        self.judge = Judge(reading, self.outside, self.figures)
        self.runs = [ModelRun(self.workspace_id, f"run_model_{self.setting.share}_{n}") for n in range(2)]
        self.intents: list[Intent] = []
        #: Successors and compensations: made by people's orders, visited by no run.
        self.ordered: list[Intent] = []
        self.waiting: list[Errand] = []
        self.story: list[str] = []
        self.steps: list[Step] = []
        self.broken = False
        self._open = ExitStack()
        self._open.enter_context(transaction.atomic())
        with connection.cursor() as cursor:
            # A transaction of an example may stand as long as Hypothesis thinks.
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        self._open.enter_context(governs(self.clock))
        self._open.enter_context(counted_statements())
        self._open.enter_context(reading.notices())
        self._open.enter_context(stands_for_the_network(self.outside))
        # Nobody is rung for: a worker comes when the machine lets one come.
        self._open.enter_context(mock.patch.object(doorbell, "ring", return_value=True))

    # -- doing ---------------------------------------------------------------------------------------------------

    def step(self, rule: str, words: str) -> None:
        """What happens now, for the story and the figures."""
        self.figures.steps[rule] += 1
        self.story.append(words)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Whatever fails within it fails with the story so far."""
        try:
            yield
        except Exception as error:
            self.broken = True
            steps = "\n".join(f"  {n}. {words}" for n, words in enumerate(self.story, 1))
            kind = "" if isinstance(error, Wrong) else f"{type(error).__name__}: "
            raise Wrong(f"{kind}{error}\nafter:\n{steps}") from error

    def errand(
        self,
        words: str,
        work: Callable[[], Any],
        *,
        effect_id: str = "",
        fault: Fault = Fault.NONE,
        view: View = View.TRUE,
        stops: frozenset[Stop] = frozenset(),
        dies_before: int | None = None,
    ) -> Errand:
        """Let a process of the product do *work*, until it is over, killed, or held up at the network."""
        made = Errand(words, effect_id, work, fault, view, stops, dies_before)
        self._go(made)
        return made

    def _go(self, errand: Errand) -> None:
        before = len(self.outside.deliveries)
        with self.told():
            errand.go()
            self._ended(errand)
        for one in self.outside.deliveries[before:]:
            if one.fault != Fault.NONE:
                self.figures.faults[one.fault] += 1

    def _ended(self, errand: Errand) -> None:
        if errand.stands is not None:
            self.waiting.append(errand)
            self.figures.stood[errand.stands] += 1
            self.story[-1] += f" — held up {errand.stands}"
        elif errand.killed:
            self.figures.kills[BETWEEN] += 1
            self.story[-1] += f" — killed before its statement {errand.statements}"
        elif errand.error is not None and not isinstance(errand.error, (Refusal, OriginLost)):
            raise errand.error
        elif errand.error is not None:
            self.story[-1] += f" — {errand.error}"

    def go_on(self, errand: Errand) -> None:
        """It was held up and goes on; to its next stop, if it has one."""
        self.waiting.remove(errand)
        errand.stops -= {errand.stands}
        self._go(errand)

    def kill(self, errand: Errand) -> None:
        self.waiting.remove(errand)
        assert errand.stands is not None
        self.figures.kills[errand.stands] += 1
        with self.told():
            errand.kill()
            require(errand.killed, f"{errand.words} caught its own kill")

    def command(self, words: str, work: Callable[[], Any]) -> bool:
        """A person's request, in a transaction of its own. Refused: the reason is told, and nothing was written."""
        with self.told():
            try:
                with transaction.atomic():
                    work()
            except Refusal as refusal:
                self.story[-1] += f" — refused: {refusal}"
                return False
        return True

    # -- looking -------------------------------------------------------------------------------------------------

    @invariant()
    def the_ledger_is_right(self) -> None:
        with self.told():
            self.judge.look()

    def effect(self, intent: Intent) -> Effect:
        return Effect.objects.select_related("receiver", "command").get(id=intent.effect_id)

    def has(self, table: str) -> bool:
        """Whether the ledger had any row in *table* after the last step."""
        return self.judge.before is not None and bool(self.judge.before[table])

    def intent(self, which: int) -> Intent:
        """*which* counts first those that may be sent, then those that are asked about, and last those that are settled."""
        return self._in_order()[which % len(self.intents)]

    def _in_order(self) -> list[Intent]:
        return sorted(self.intents, key=self.rank)

    def rank(self, intent: Intent) -> int:
        """0: may be sent or asked about; 1: its outcome is awaited; 3: with a person, or its run is over; 4: settled."""
        rows = self.judge.before
        assert rows is not None
        row = rows["effect"][intent.effect_id]
        if row["final"]:
            return 4
        if rows.open_reviews(intent.effect_id) or intent.run.over:
            return 3
        by_key = row["sub_state"] == "uncertain" and row["dedup"] == Dedup.KEY
        return 0 if row["sub_state"] in ("recorded", "ready", "backoff", "held") or by_key else 1

    def everything(self) -> list[Intent]:
        return [*self.intents, *self.ordered]

    def by_trouble(self, which: int) -> Intent:
        """*which* counts first those that stand with a person or are failed, then all others."""
        rows = self.judge.before
        assert rows is not None

        def rank(intent: Intent) -> int:
            row = rows["effect"][intent.effect_id]
            troubled = row["sub_state"] in ("held", "refused", "uncertain") or rows.open_reviews(
                intent.effect_id
            )
            return 0 if troubled else 1

        found = sorted(self.everything(), key=rank)
        return found[which % len(found)]

    def named(self, effect_id: str) -> str:
        return next((f"“{one.called}”" for one in self.everything() if one.effect_id == effect_id), effect_id)

    def bearable(self, fault: Fault, effect_type: str) -> Fault:
        """Nobody ever promised to tell a request from its double where the receiver has no key of any kind."""
        untold = contract(effect_type).dedup in (Dedup.QUERY, Dedup.NONE)
        return Fault.LOST if fault == Fault.DOUBLED and untold else fault

    def sendable(self) -> int:
        """How many of the intents may be sent, or asked about, as they stand."""
        return sum(self.rank(one) == 0 for one in self.intents)

    # -- the end -------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            if not self.broken:
                self.settle_all()
                self._count()
        finally:
            if self.broken:
                type(self).failed = self.steps
            for errand in list(self.waiting):
                errand.kill()
            transaction.set_rollback(True)
            self._open.close()

    def settle_all(self) -> None:
        """With an honest world and enough time everything is settled, or stands with a person."""

    def _count(self) -> None:
        rows = self.judge.before
        assert rows is not None
        self.figures.effects += len(rows["effect"])
        self.figures.attempts += len(rows["attempt"])
        self.figures.requests += sum(one.left for one in self.outside.deliveries)
        self.figures.looks += self.outside.looks
        for effect in rows["effect"].values():
            words = " ".join(filter(None, (effect["status"], effect["sub_state"])))
            self.figures.ended[words + (", in review" if rows.open_reviews(effect["id"]) else "")] += 1
        for review in rows["review"].values():
            self.figures.reviews[review["reason"]] += 1
        with self.told(), connection.cursor() as cursor:
            # What Postgres would have checked at each commit.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
