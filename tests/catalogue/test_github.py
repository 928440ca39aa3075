"""Issues at GitHub, against a local server that behaves as its documentation says.

https://docs.github.com/en/rest/issues/issues and https://docs.github.com/en/rest/using-the-rest-api, read 2026-12-01.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from console.kernel.errors import Invalid
from effects import reconcile
from effects.catalogue import github
from effects.wires import marked, marks
from tests.catalogue.conftest import Desk
from tests.catalogue.servers import LocalServer, Reply, Seen

ISSUE = {"repository": "harbor-pine/ops", "title": "Disk is full", "body": "On db-2.\n\nSince 07:10."}


@dataclass
class GitHub:
    url: str = ""
    issues: list[dict[str, Any]] = field(default_factory=list)
    page: int = 2

    def __call__(self, seen: Seen) -> Reply:
        if seen.method == "GET":
            return self._list(seen)
        self.issues.append({"number": len(self.issues) + 1, "id": 9_000 + len(self.issues), **seen.json})
        return Reply(201, self.issues[-1])

    def _list(self, seen: Seen) -> Reply:
        """Newest first, a plain list, the next page in the Link header."""
        number = int(seen.query.get("page", 1))
        newest = list(reversed(self.issues))
        end = number * self.page
        link = f'<{self.url}{seen.path}?page={number + 1}>; rel="next", <{self.url}{seen.path}?page=9>; rel="last"'
        return Reply(200, newest[end - self.page : end], {"Link": link} if end < len(newest) else {})


@pytest.fixture
def service() -> GitHub:
    return GitHub()


@pytest.fixture
def tracker(desk: Desk, service: GitHub, serve: Callable[..., LocalServer]) -> LocalServer:
    server = serve(service)
    service.url = server.url
    desk.receiver("github", server.url, "a token")
    return server


def lost(desk: Desk, tracker: LocalServer, **changes: str) -> str:
    """An issue whose answer never came, and which was never made."""
    tracker.instead = [Reply(lost=True)]
    return desk.send("github.create_issue", **{**ISSUE, **changes})


def test_the_id_stands_in_the_text_where_readers_do_not_see_it(
    desk: Desk, tracker: LocalServer, service: GitHub
) -> None:
    effect_id = desk.send("github.create_issue", **ISSUE)
    [sent] = tracker.writes
    assert sent.target == "/repos/harbor-pine/ops/issues"
    assert sent.json == {
        "title": "Disk is full",
        "body": f"On db-2.\n\nSince 07:10.\n\n<!-- signalbox-effect: {effect_id} -->",
    }
    assert sent.headers["accept"] == "application/vnd.github+json"
    assert sent.headers["x-github-api-version"] == "2022-11-28"
    assert sent.headers["authorization"] == "Bearer a token"
    assert desk.standing(effect_id) == ("completed", "")
    assert desk.effect(effect_id).provider_reference == "1"


def test_a_lost_answer_is_never_sent_again_but_found(
    desk: Desk, tracker: LocalServer, service: GitHub
) -> None:
    tracker.lose = 1
    effect_id = desk.send("github.create_issue", **ISSUE)
    service.issues += [{"number": number, "title": "Another", "body": None} for number in range(2, 8)]
    desk.perform(effect_id)
    assert desk.look(effect_id) == "found"
    assert desk.effect(effect_id).provider_reference == "1"
    assert len(tracker.writes) == 1
    first = tracker.reads[0]
    assert first.query | {"since": ""} == {
        "state": "all",
        "sort": "created",
        "direction": "desc",
        "per_page": "100",
        "creator": "signalbox[bot]",
        "since": "",
    }
    assert [one.query.get("page", "1") for one in tracker.reads] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("<!-- signalbox-effect: {id}0 -->", id="a longer one"),
        pytest.param("<!-- signalbox-effect: {shorter} -->", id="a shorter one"),
        pytest.param("> <!-- signalbox-effect: {id} -->", id="quoted"),
        pytest.param("See {id}", id="named in the text"),
        pytest.param("`<!-- signalbox-effect: {id} -->` is what it looks like", id="in a sentence"),
    ],
)
def test_only_the_whole_line_is_the_mark(
    desk: Desk, tracker: LocalServer, service: GitHub, text: str
) -> None:
    effect_id = lost(desk, tracker)
    body = text.format(id=effect_id, shorter=effect_id[:-1])
    service.issues = [{"number": 1, "title": ISSUE["title"], "body": f"As before:\n{body}\n"}]
    assert desk.look(effect_id) == "absent"


def test_the_mark_is_found_whatever_was_done_to_the_text_around_it(
    desk: Desk, tracker: LocalServer, service: GitHub
) -> None:
    effect_id = lost(desk, tracker)
    text = marked("On db-2.", effect_id).replace("\n", "\r\n") + "\r\n\r\nEdited: solved."
    service.issues = [{"number": 4, "title": ISSUE["title"], "body": text}]
    assert desk.look(effect_id) == "found"


def test_a_text_put_together_from_two_is_neithers(desk: Desk, tracker: LocalServer, service: GitHub) -> None:
    effect_id = lost(desk, tracker)
    text = marked(marked("Both of them", effect_id), "eff_another")
    service.issues = [{"number": 5, "title": ISSUE["title"], "body": text}]
    assert desk.look(effect_id) == "unclear"
    assert desk.said(effect_id) == ["An object bears this id and others' beside it."]


def test_two_issues_with_the_mark_go_to_a_person(desk: Desk, tracker: LocalServer, service: GitHub) -> None:
    effect_id = lost(desk, tracker)
    service.issues = [
        {"number": number, "title": ISSUE["title"], "body": marked("x", effect_id)} for number in (1, 2)
    ]
    assert desk.look(effect_id) == "several"
    assert desk.reviews(effect_id) == ["duplicate_found"]


def test_not_found_proves_nothing_and_ends_with_a_person(
    desk: Desk, tracker: LocalServer, service: GitHub
) -> None:
    effect_id = lost(desk, tracker)
    for _ in range(reconcile.LOOKS):
        assert desk.look(effect_id) == "absent"
    assert desk.standing(effect_id) == ("pending", "uncertain")
    assert desk.reviews(effect_id) == ["unqueryable"]
    desk.perform(effect_id)
    assert len(tracker.writes) == 1


def test_a_text_that_bears_a_mark_already_is_refused_before_anything_is_written(desk: Desk) -> None:
    desk.receiver("github", "http://127.0.0.1:9", "a token")
    with pytest.raises(Invalid, match="body bears another effect's id"):
        desk.propose("github.create_issue", **{**ISSUE, "body": marked("Stolen", "eff_of_another")})


@pytest.mark.parametrize(
    ("headers", "outcome"),
    [
        ({"retry-after": "60"}, "not_sent"),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{time.time() + 90:.0f}"}, "not_sent"),
        ({"x-ratelimit-remaining": "12"}, "refused"),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, "refused"),
        ({}, "refused"),
    ],
)
def test_403_is_a_refusal_unless_it_says_how_long_to_wait(
    desk: Desk, tracker: LocalServer, headers: dict[str, str], outcome: str
) -> None:
    tracker.instead = [Reply(403, {"message": "Resource not accessible by integration"}, headers)]
    effect_id = desk.propose("github.create_issue", **ISSUE)
    if outcome == "refused":
        with pytest.raises(Exception, match="403: Resource not accessible"):
            desk.perform(effect_id)
    else:
        desk.perform(effect_id)
        effect = desk.effect(effect_id)
        assert effect.sub_state == "backoff"
    assert desk.attempts(effect_id) == [(outcome, "403")]


@pytest.mark.parametrize("name", ["", "..", "a/b", "a?b", "ä", "x" * 101])
def test_a_name_that_would_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="can't be a name at GitHub"):
        github.create_issue("harbor-pine", name)
    with pytest.raises(ValueError, match="can't be a name at GitHub"):
        github.create_issue(name, "ops")


def test_a_probe_may_leave_issues_only_where_that_is_said() -> None:
    """An issue notifies whoever watches the repository: harmless is only one that somebody has set apart."""
    assert github.create_issue("harbor-pine", "ops").harmless is None
    apart = github.create_issue("harbor-pine", "probes", for_probes=True)
    assert apart.harmless
    one = apart.validated(apart.harmless("probe-1"))
    assert (one["repository"], "probe-1" in one["title"]) == ("harbor-pine/probes", True)


def test_marks_are_read_as_they_are_written() -> None:
    assert marks(marked("text", "eff_1")) == ["eff_1"]
    assert marks("") == marks("<!-- signalbox-effect: -->") == []
