"""A lineage as its page shows it: the whole tree of the root, with one run and with two hundred of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.kernel.ids import new_id
from console.models import User
from runs.models import Checkpoint, Run
from runs.states import RunKind, RunMode, RunStatus
from runs.views import lineage
from tests.people import World, make_world
from tests.views import rows
from tests.views.conftest import words_of

ClientOf = Callable[[User], Client]
pytestmark = pytest.mark.django_db


def checkpoint(run: Run, number: int = 3) -> Checkpoint:
    return Checkpoint.objects.create(
        run=run,
        engine_id=f"1f0{number + 1:05d}-0000-6000-8000-000000000000",
        fence=1,
        number=number,
        source="loop",
        nodes=["draft_offer"],
        size=1,
    )


def made_of(
    world: World,
    parent: Run,
    *,
    kind: RunKind = RunKind.REPLAY,
    mode: RunMode = RunMode.EVIDENCE,
    reason: str = "To see.",
    at: Checkpoint | None = None,
    **fields: Any,
) -> Run:
    """A replay or branch, as the command leaves it."""
    source = at or parent.checkpoints.first() or checkpoint(parent)
    run = Run(
        workspace=parent.workspace,
        conversation=parent.conversation,
        customer_ref=parent.customer_ref,
        title=parent.title,
        workflow=parent.workflow,
        fingerprint=parent.fingerprint,
        kind=kind,
        mode=mode,
        parent_run=parent,
        parent_checkpoint=source,
        root_run_id=parent.root_run_id,
        launch_reason=reason,
        models_asked=mode == RunMode.LIVE,
        starter=world.developer,
        input=parent.input,
        input_hash="h",
        command_token=new_id("run"),
        **fields,
    )
    run.save(force_insert=True)
    return run


def page(run: Run, query: str = "?part=lineage") -> str:
    return f"/w/{run.workspace_id}/runs/{run.id}/{query}"


def test_an_original_alone_says_so(acme: World, client_of: ClientOf) -> None:
    run = rows.run_in(acme)
    assert "No replay and no branch has been made of this run" in words_of(
        client_of(acme.viewer).get(page(run))
    )


def test_it_names_kind_mode_reason_who_and_from_which_step(acme: World, client_of: ClientOf) -> None:
    root = rows.run_in(acme)
    replay = made_of(acme, root, reason="Which price list?")
    branch = made_of(acme, root, kind=RunKind.BRANCH, mode=RunMode.SIMULATION, reason="Less discount")
    deeper = made_of(acme, branch, mode=RunMode.SIMULATION, reason="<b>again</b>")
    for seen in (root, replay, branch, deeper):
        response = client_of(acme.viewer).get(page(seen))
        text, said = response.content.decode(), words_of(response)
        for words in (
            "Replay, evidence",
            "Branch, simulation",
            "Which price list? · Developer",
            "keeps all up to step 3 (draft_offer)",
            "<b>again</b>",
        ):
            assert words in said
        assert "<b>again</b>" not in text
        panel = text.partition('id="parts"')[2].partition('id="beside"')[0]
        assert panel.count('aria-current="true"') == 1
        assert panel.count("this run") == 1
        others = {root.id, replay.id, branch.id, deeper.id} - {seen.id}
        assert all(f"/runs/{other}/" in panel for other in others)


def test_a_child_stands_below_its_parent(acme: World, client_of: ClientOf) -> None:
    root = rows.run_in(acme)
    branch = made_of(acme, root, kind=RunKind.BRANCH, mode=RunMode.SIMULATION)
    made_of(acme, branch, mode=RunMode.SIMULATION)
    tree = client_of(acme.viewer).get(page(root)).context["lineage"]
    assert [child["id"] for child in tree["children"]] == [branch.id]
    assert len(tree["children"][0]["children"]) == 1


@pytest.mark.parametrize("shape", ["wide", "deep"])
def test_two_hundred_runs_take_no_more_queries_than_three(
    acme: World, client_of: ClientOf, django_assert_max_num_queries: Any, shape: str
) -> None:
    root = rows.run_in(acme)
    at = root
    for _ in range(200):
        source = checkpoint(at) if shape == "deep" else None
        made = made_of(acme, at, at=source, mode=RunMode.SIMULATION)
        at = made if shape == "deep" else root
    client = client_of(acme.viewer)
    client.get(page(root))
    with django_assert_max_num_queries(26):
        response = client.get(page(at))
    text = response.content.decode()
    assert response.status_code == 200
    panel = text.partition('id="parts"')[2].partition('id="beside"')[0]
    assert panel.count("lineage__run") == 201
    assert panel.count("<ul") == panel.count("</ul>")
    assert panel.count("<li>") == panel.count("</li>")
    assert "201" in text.partition("Lineage")[2][:60]


def test_beyond_what_a_page_holds_this_run_is_still_there(
    acme: World, client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "MOST", 3)
    root = rows.run_in(acme)
    later = timezone.now() + timedelta(minutes=1)
    for _ in range(5):
        made_of(acme, root, created_at=timezone.now())
    parent = made_of(acme, root, created_at=later, mode=RunMode.SIMULATION)
    last = made_of(acme, parent, created_at=later, mode=RunMode.SIMULATION)
    response = client_of(acme.viewer).get(page(last))
    assert "Not all of its runs are shown" in words_of(response)
    (branch,) = [one for one in response.context["lineage"]["children"] if one["id"] == parent.id]
    assert [one["this"] for one in branch["children"]] == [True]


def test_nothing_of_another_workspace_is_in_it(acme: World, client_of: ClientOf) -> None:
    root = rows.run_in(acme)
    other = make_world("other")
    made_of(acme, root)
    assert client_of(other.viewer).get(page(root)).status_code == 404
    assert rows.stands(root, RunStatus.COMPLETED)
    elsewhere = rows.run_in(other)
    assert "run_" in elsewhere.id
    assert client_of(other.viewer).get(page(elsewhere)).context["family"].runs == [elsewhere]
