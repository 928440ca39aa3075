"""What the command does not touch, and says so: nothing reaches a receiver, no row is written."""

from __future__ import annotations

import io
import os

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from effects.contracts import contracts as known
from effects.models import Effect, Probe, Standing, Stop
from effects.states import StopScope
from tests.probe.conftest import Ground


def untouched(ground: Ground, *arguments: str, contracts: str = "UNTOUCHED") -> str:
    """What it says, having touched nothing."""
    before = _rows_and_requests(ground)
    said = io.StringIO()
    options = (
        arguments if "--workspace" in arguments else ("--workspace", ground.world.workspace.id, *arguments)
    )
    with override_settings(CONTRACTS=[f"tests.probe.contracts:{contracts}"]):
        known.cache_clear()
        try:
            with pytest.raises(CommandError) as refused:
                call_command("probe", *options, stdout=said)
        finally:
            known.cache_clear()
    assert _rows_and_requests(ground) == before
    return f"{said.getvalue()}{refused.value}"


def _rows_and_requests(ground: Ground) -> tuple[int, int, int]:
    return Effect.objects.count(), Probe.objects.count(), len(ground.witness.requests())


@pytest.mark.parametrize(
    ("effect_type", "words"),
    [
        ("probed.harmful", "has no harmless object. Give it one: harmless=lambda text"),
        ("probed.misfit", "does not fit its own contract"),
        ("probed.broken", "can't be made: IndexError"),
        ("probed.always_the_same", "is the same for every text"),
        ("probed.homeless", "has no live receiver of that name"),
        ("probed.unheard_of", "There is no contract for the effect type"),
    ],
)
def test_a_type_that_can_not_be_probed(ground: Ground, effect_type: str, words: str) -> None:
    assert words in untouched(ground, effect_type, "--yes")


def test_all_of_them_leave_out_what_has_no_harmless_object_and_fail_for_what_is_wrong(ground: Ground) -> None:
    said = untouched(ground, "--all", "--yes")
    assert "3 of 3 failed" in said
    assert "harmful has no harmless object" in said


def test_no_receiver_is_touched_unasked(ground: Ground) -> None:
    said = untouched(ground, "probed.offer", contracts="CONTRACTS")
    assert f"probed.offer (version 1) at crm, live, account {ground.world.account}" in said
    assert "Nothing was sent. Say --yes" in said


def test_a_demo_need_not_be_asked(ground: Ground) -> None:
    """Whether it may be touched is settled; here a kill switch then stops it."""
    workspace = ground.world.workspace
    workspace.is_demo = True
    workspace.save(update_fields=["is_demo"])
    stop = Stop.objects.create(
        workspace=workspace,
        scope=StopScope.TYPE,
        target="probed.offer",
        reason="The price list is wrong.",
        by=ground.world.releaser,
    )
    try:
        said = untouched(ground, "probed.offer", contracts="CONTRACTS")
    finally:
        workspace.is_demo = False
        workspace.save(update_fields=["is_demo"])
        Stop.objects.filter(id=stop.id).update(
            lifted_at=stop.at, lifted_by=ground.world.releaser, lifted_why="Over."
        )
    assert "A kill switch is on" in said
    assert "The price list is wrong." in said


@pytest.mark.parametrize("shared", ["account", "host"])
def test_an_isolated_receiver_that_can_not_be_told_from_the_live_one(ground: Ground, shared: str) -> None:
    live = ground.world.workspace.receivers.get(name="crm")
    same = {"account": {"account": live.account}, "host": {"account": "isolated"}}[shared]
    url = "http://127.0.0.1:9" if shared == "account" else live.base_url
    isolated = ground.connect("crm", url, standing=Standing.ISOLATED, **same)
    try:
        said = untouched(ground, "probed.offer", "--yes", contracts="CONTRACTS")
    finally:
        isolated.delete()
    assert "can't be told" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Name one effect type, or say --all."),
        (("probed.offer", "--all"), "Name one effect type, or say --all."),
        (("probed.offer", "--receiver", "desk"), "probed.offer goes to crm, not to desk."),
    ],
)
def test_a_command_that_says_too_little_or_too_much(
    ground: Ground, arguments: tuple[str, ...], words: str
) -> None:
    assert words in untouched(ground, *arguments, contracts="CONTRACTS")


def test_a_workspace_that_is_not_there(ground: Ground) -> None:
    said = untouched(ground, "probed.offer", "--workspace", f"nobody-{os.getpid()}", contracts="CONTRACTS")
    assert "There is no workspace" in said
