"""An ordinary LangChain agent with HumanInTheLoopMiddleware: pauses in the inbox, goes on after each decision."""

from __future__ import annotations

import pytest

from effects.models import Effect
from effects.states import Decision
from runs.models import Run
from tests.people import World
from tests.process.journeys import Receiver, approve, asked, begin, reaches
from tests.stack import Stack

pytestmark = pytest.mark.process


def _begin(world: World) -> Run:
    run = begin(
        world,
        "support_agent",
        email="giulia@ferrante-ceramiche.example",
        message="The kiln scanner crashes with an error at every login. Please help, this is urgent.",
    )
    return reaches(run, "waiting_approval")


def test_it_goes_on_after_approve(stack: Stack, live: World) -> None:
    run = _begin(live)
    approve(live, asked(run))
    reaches(run, "completed")
    made = Receiver(stack, live.account).effects()
    effect = Effect.objects.get(run_id=run.id)
    assert [one["external_id"] for one in made] == [effect.id]
    assert effect.command.tool == "open_ticket"


def test_it_goes_on_after_an_edit_that_a_second_person_approves(stack: Stack, live: World) -> None:
    run = _begin(live)
    approve(live, asked(run), decision=Decision.EDIT, answer={"subject": "Kiln scanner: login fails"})
    reaches(run, "waiting_approval")
    approve(live, asked(run), live.second_approver)
    reaches(run, "completed")
    made = Receiver(stack, live.account).effects()
    assert [one["document"]["subject"] for one in made] == ["Kiln scanner: login fails"]
    assert len(Receiver(stack, live.account).requests()) == 1


def test_it_goes_on_after_reject(stack: Stack, live: World) -> None:
    run = _begin(live)
    approve(live, asked(run), decision=Decision.REJECT, reason="They have an open ticket already")
    reaches(run, "completed")
    assert Receiver(stack, live.account).requests() == []
    assert Effect.objects.get(run_id=run.id).sub_state == "rejected_by_person"
