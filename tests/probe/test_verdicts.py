"""The command against receivers that keep the contracts' promises and against such that break one of them each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client
from pytest_django import DjangoDbBlocker

from console.kernel.ids import new_id
from console.models import AuditEvent, User
from effects import reconcile
from effects.contracts import EffectContract
from effects.models import Effect, EffectAttempt, Order, Probe, Review
from effects.probe import Target, Trial
from effects.probe.cases import Name, cases_of
from effects.probe.standing_in import StandIn
from effects.states import EffectStatus, SubState
from tests.probe import contracts
from tests.probe.conftest import Ground, Probed
from tests.stack import wait_for

HONEST = [promise.type for promise in (*contracts.HONEST, *contracts.FAIR)]
ALL = [promise.type for promise in contracts.CONTRACTS]


@pytest.mark.parametrize("effect_type", HONEST)
def test_what_keeps_its_promise_passes(probed: Probed, effect_type: str) -> None:
    promise = next(one for one in contracts.CONTRACTS if one.type == effect_type)
    probe = probed.ground.probe(effect_type)
    assert probed.ground.failed(effect_type) == set()
    assert probe.passed
    assert [case["name"] for case in probe.cases] == [name.value for name in cases_of(promise)]
    assert (probe.contract_version, probe.account) == (promise.version, probed.ground.world.account)
    assert probe.began_at < probe.at


@pytest.mark.parametrize(
    ("effect_type", "fails", "seen"),
    [
        # What ignores the key makes a second one of a repeat, and of changed input too.
        ("probed.ignores_key", {"killed_after_commit", "changed_input"}, "has 2 of them"),
        ("probed.takes_changes", {"changed_input"}, "did not refuse the changed input: 201"),
        ("probed.lags", {"look_up"}, "not found"),
        ("probed.by_prefix", {"look_up"}, "a part of its id"),
        ("probed.overwrites", {"second_create"}, "receiver says subject is"),
        ("probed.doubles", {"second_create"}, "has 2 of them"),
    ],
)
def test_what_breaks_its_promise_fails_in_the_case_that_tries_it(
    probed: Probed, effect_type: str, fails: set[str], seen: str
) -> None:
    assert not probed.ground.probe(effect_type).passed
    assert probed.ground.failed(effect_type) == fails
    assert all(
        seen in probed.ground.seen(effect_type, case) or case == "killed_after_commit" for case in fails
    ), [probed.ground.seen(effect_type, case) for case in fails]


def test_where_nothing_is_taken_nothing_more_is_tried(probed: Probed) -> None:
    cases = probed.ground.probe("probed.refuses").cases
    assert "there is no customer probe" in cases[0]["seen"]
    assert {case["seen"] for case in cases[1:]} == {"not tried"}
    assert not any(case["passed"] for case in cases)
    assert len(probed.ground.keeper("refuses").requests) == 1


def test_it_exits_with_1_and_names_every_verdict(probed: Probed) -> None:
    assert probed.status == 1
    assert f"{len(contracts.DISHONEST)} of {len(ALL)} failed" in probed.said
    for effect_type in ALL:
        assert probed.said.count(f"\n{effect_type} 1 at ") == 1
    for column in ("case", "expected", "seen", "verdict"):
        assert column in probed.said
    assert "4 harmless objects" in probed.said


# What the outside itself has


def test_the_receivers_own_records_agree(probed: Probed) -> None:
    """A probe leaves four objects; each has one key; the one repeat made none, and the changed input none."""
    ground = probed.ground
    keys = list(_whole(ground, "probed.offer").values_list("key", flat=True))
    made = [one for one in ground.witness.effects() if one["key"] in keys]
    sent = [one for one in ground.witness.requests() if one["key"] in keys]
    assert len(made) == len({one["object_id"] for one in made}) == len(keys) == 4
    assert sorted(one["status"] for one in sent) == [201, 201, 201, 201, 201, 422]
    assert sum(one["made_effect"] for one in sent) == 4
    fair = ground.keeper("fair")
    assert len(fair.things) == len({one["external_id"] for one in fair.things}) == 12


def test_each_mail_was_handed_over_once(probed: Probed) -> None:
    for effect in _whole(probed.ground, "probed.mail"):
        assert len(probed.ground.witness.mails(effect.id)) == 1, effect.id


def test_requests_are_attempts_and_what_observations_tell(probed: Probed) -> None:
    """The changed input is sent by no attempt: the ledger never would. The effect's observations say that it was."""
    ground = probed.ground
    for effect_type, server in (("probed.ignores_key", "ignores_key"), ("probed.overwrites", "overwrites")):
        told = [
            one
            for effect in ground.effects(effect_type)
            for one in effect.observations.filter(kind="probe", found="sent")
        ]
        assert len(told) == 1
        assert len(ground.keeper(server).requests) == ground.attempts(effect_type) + 1


def test_a_receiver_that_asks_to_wait_is_waited_for(probed: Probed) -> None:
    """What it turned away is proven unsent: no second attempt, and no second object."""
    outcomes = EffectAttempt.objects.filter(effect__in=probed.ground.effects("probed.busy"))
    unsent = outcomes.filter(outcome="not_sent").count()
    assert unsent == len(probed.ground.keeper("busy").things) == 4
    assert "1 attempt, and both saw" in probed.ground.seen("probed.busy", Name.TWO_WORKERS)


def _whole(ground: Ground, effect_type: str) -> Any:
    """The effects of the newest probe: of its two runs, the second begins right after the first."""
    probe = ground.probe(effect_type)
    return ground.effects(effect_type).filter(created_at__gte=probe.began_at)


# What is left in the ledger


@pytest.mark.parametrize("effect_type", HONEST)
def test_a_probe_that_passes_leaves_nothing_to_be_done(probed: Probed, effect_type: str) -> None:
    effects = _whole(probed.ground, effect_type)
    assert [effect.status for effect in effects] == [EffectStatus.COMPLETED] * 4
    assert not Review.objects.filter(effect__in=effects, closed_at=None).exists()
    assert not EffectAttempt.objects.filter(effect__in=effects, outcome="sending").exists()


def test_its_effects_are_told_from_those_of_runs(probed: Probed) -> None:
    effects = list(probed.ground.effects())
    assert all(effect.run_id.startswith("prb_") for effect in effects)
    assert {effect.customer_ref for effect in effects} == {"probe"}
    assert not any(effect.needs_approval for effect in effects)
    assert not Order.objects.filter(workspace=probed.ground.world.workspace).exists()
    probe = probed.ground.probe("probed.offer")
    runs = {effect.run_id for effect in _whole(probed.ground, "probed.offer")}
    assert probe.id in runs
    assert len(runs) == 2


def test_the_senders_were_really_killed(probed: Probed) -> None:
    """Their attempts ended unknown: nobody was left to say what came of them."""
    for effect_type in ("probed.offer", "probed.ticket", "probed.mail"):
        lost = EffectAttempt.objects.filter(effect__in=_whole(probed.ground, effect_type), outcome="unknown")
        assert [attempt.problem for attempt in lost] == [
            "The worker that sent it was lost before it could say what came of it."
        ]


def test_without_a_look_up_it_ends_in_a_review_which_the_late_answer_closes(probed: Probed) -> None:
    [review] = Review.objects.filter(effect__in=_whole(probed.ground, "probed.mail"))
    assert review.reason == "unqueryable"
    assert review.closed_at is not None
    assert "late answer" in review.closed_why
    assert "1 attempt" in probed.ground.seen("probed.mail", Name.KILLED_AFTER_COMMIT)
    assert "can't be asked how many" in probed.ground.seen("probed.mail", Name.TWO_WORKERS)


def test_the_audit_trail_says_it(probed: Probed) -> None:
    for effect_type, verb, words in (
        ("probed.offer", "probe.passed", "and passed"),
        ("probed.lags", "probe.failed", "failed: The receiver is asked by id"),
    ):
        event = AuditEvent.objects.get(subject=probed.ground.probe(effect_type).id)
        assert (event.verb, event.workspace_id) == (verb, probed.ground.world.workspace.id)
        assert effect_type in event.sentence
        assert words in event.sentence


def test_no_secret_and_no_protected_value_is_told(probed: Probed) -> None:
    cases = json.dumps(list(Probe.objects.values_list("cases", flat=True)))
    for word in ("s3cret", "probe@signalbox.example"):
        assert word not in probed.said
        assert word not in cases


# Again


def test_only_what_is_missing_is_probed_again(probed: Probed) -> None:
    before = Probe.objects.count()
    status, said = probed.ground.run("--all", "--missing", "--yes", "--receiver", "crm")
    assert (status, Probe.objects.count()) == (0, before), said
    assert "harmless objects" not in said
    passed = {promise.type: newest_passed(probed.ground, promise) for promise in contracts.CONTRACTS}
    assert [effect_type for effect_type, has in passed.items() if has] == HONEST


def newest_passed(ground: Ground, promise: EffectContract) -> bool:
    receiver = ground.world.workspace.receivers.get(name=promise.receiver)
    return Target(ground.world.workspace, promise, receiver).has_passed


def test_what_a_probe_that_was_broken_off_left_is_tidied_up(probed: Probed) -> None:
    """What was never sent, after an hour. What may exist stays for the ledger to find out, as with any lost sender."""
    ground = probed.ground
    began = ground.probe("probed.offer").began_at
    left = ground.effects("probed.offer").filter(created_at__lt=began)
    may_exist = left.filter(sub_state__in=[SubState.IN_FLIGHT, SubState.UNCERTAIN])
    assert may_exist.exists()
    target = Target(ground.world.workspace, contracts.offer, ground.world.workspace.receivers.get(name="crm"))
    assert contracts.offer.harmless is not None
    unsent = StandIn(target, new_id("prb")).propose("left", contracts.offer.harmless("left")).effect_id
    for age, stands in ((0.9, SubState.READY), (1.1, SubState.CANCELLED)):
        Effect.objects.filter(id=unsent).update(created_at=Now() - timedelta(hours=age))
        Trial(target)._cancel_what_was_broken_off()
        assert Effect.objects.get(id=unsent).sub_state == stands
    assert may_exist.exists()


# On the pages: they belong to no run, and nothing leads to one


@pytest.fixture
def shown(probed: Probed, django_db_blocker: DjangoDbBlocker) -> Callable[[User, str], str]:
    def read(person: User, path: str) -> str:
        client = Client()
        client.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
        answer = client.get(f"/w/{probed.ground.world.workspace.id}/{path}", follow=True)
        assert answer.status_code == 200, path
        text = answer.content.decode()
        assert not re.search(r'href="[^"]*/runs/prb_', text)
        return text

    return read


@pytest.fixture
def lost(probed: Probed) -> Effect:
    """What the killed probe left in flight; its lease is over by now, and it goes to a person."""
    ground = probed.ground
    killed = (
        ground.effects("probed.offer")
        .order_by("created_at", "id")
        .filter(tries=1)
        .exclude(status="completed")[0]
    )
    if killed.sub_state == "in_flight":
        wait_for("its lease to end", lambda: reconcile.lose_lease(killed.id))
    return Effect.objects.get(id=killed.id)


def test_home_leads_to_the_effect(probed: Probed, lost: Effect, shown: Callable[[User, str], str]) -> None:
    text = shown(probed.ground.world.viewer, "")
    review = lost.reviews.get(closed_at=None)
    assert f"/reviews/{review.id}/" in text or f"/effects/{lost.id}/" in text
    assert 'class="row-link" href=""' not in text


def test_the_effects_page_shows_whose_they_are(probed: Probed, shown: Callable[[User, str], str]) -> None:
    viewer = probed.ground.world.viewer
    probe = probed.ground.probe("probed.fair_id")
    text = shown(viewer, f"effects/?run={probe.id}")
    assert text.count("probed.fair_id</span>") == 3
    assert shown(viewer, f"search?q={probe.id}").count("probed.fair_id</span>") == 3


def test_an_effect_says_that_a_probe_made_it(probed: Probed, shown: Callable[[User, str], str]) -> None:
    changed = probed.ground.effects("probed.overwrites").filter(observations__kind="probe").first()
    text = shown(probed.ground.world.viewer, f"effects/{changed.id}/")
    assert "a harmless object that tried the contract" in text
    assert f"effects/?run={changed.run_id}" in text
    assert "overwrites did not refuse it: 200" in text


def test_the_audit_trail_shows_the_verdict(probed: Probed, shown: Callable[[User, str], str]) -> None:
    text = shown(probed.ground.world.auditor, "audit/?verb=probe.failed")
    assert "probed.lags 1 was probed at lags" in text
