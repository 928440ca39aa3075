"""Which worker is given which tests: all of them once, and none on a database that another kind has used already."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.kinds import Kind, kind_of
from tests.shares import DATABASE, Shares

KINDS = {
    "tests/views/test_page.py::test_a": Kind.ROLLED_BACK,
    "tests/views/test_page.py::test_b": Kind.ROLLED_BACK,
    "tests/effects/test_send.py::test_a": Kind.ROLLED_BACK,
    "tests/effects/test_send.py::test_races": Kind.COMMITTED,
    "tests/engine/test_pauses.py::test_a": Kind.COMMITTED,
    "tests/process/test_kill.py::test_a": Kind.STACK,
    "tests/process/test_kill.py::test_b": Kind.STACK,
    "tests/process/test_kill.py::test_c": Kind.STACK,
    "tests/process/test_story.py::test_a": Kind.STACK,
    "tests/demo/test_seed.py::test_database": Kind.ROLLED_BACK,
    "tests/demo/test_seed.py::test_stack": Kind.STACK,
    "tests/setup/test_up.py::test_a": Kind.PROCESSES,
    "tests/kernel/test_ids.py::test_a": Kind.NOTHING,
    "tests/kernel/test_ids.py::test_b": Kind.NOTHING,
}
IDS = list(KINDS)


class Worker:
    """Keeps what it is sent and runs it only when told to."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.shutting_down = False
        self.sent: list[str] = []
        self.run = 0

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.sent += [IDS[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def kinds(self) -> list[Kind]:
        return [KINDS[test] for test in self.sent]


def shared(folder: Path, workers: int, next_to_run: Callable[[list[Worker]], Worker]) -> list[Worker]:
    """Hand all tests out to so many workers, of which *next_to_run* picks the one that ends its next test."""
    kinds = folder / "kinds.json"
    kinds.write_text(json.dumps(KINDS))
    config: Any = SimpleNamespace(
        getvalue=lambda _: ["popen"] * workers, option=SimpleNamespace(loadscopereorder=True)
    )
    log: Any = SimpleNamespace(loadscopesched=lambda *_: None)
    shares = Shares(config, log, kinds)
    nodes = [Worker(number) for number in range(workers)]
    for node in nodes:
        shares.add_node(node)
        shares.add_node_collection(node, IDS)
    shares.schedule()
    while busy := [node for node in nodes if node.run < len(node.sent)]:
        node = next_to_run(busy)
        shares.mark_test_complete(node, IDS.index(node.sent[node.run]))
        node.run += 1
    assert shares.tests_finished
    assert sorted(test for node in nodes for test in node.sent) == sorted(IDS)
    return nodes


FASTEST: dict[str, Callable[[list[Worker]], Worker]] = {
    "the first": lambda busy: busy[0],
    "the last": lambda busy: busy[-1],
    "all alike": lambda busy: min(busy, key=lambda node: node.run),
}


@pytest.mark.parametrize("fastest", FASTEST)
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_each_is_given_once_and_no_database_goes_back(tmp_path: Path, workers: int, fastest: str) -> None:
    for node in shared(tmp_path, workers, FASTEST[fastest]):
        used = [kind for kind in node.kinds if kind in DATABASE]
        assert used == sorted(used, key=DATABASE.index)


@pytest.mark.parametrize("workers", [2, 3])
def test_one_worker_begins_with_the_stack_and_the_others_with_the_rest(tmp_path: Path, workers: int) -> None:
    first, *others = shared(tmp_path, workers, FASTEST["all alike"])
    assert first.sent[:3] == [f"tests/process/test_kill.py::test_{one}" for one in "abc"]  # the longest file
    assert {node.kinds[0] for node in others} == {Kind.ROLLED_BACK}


def item(*fixtures: str, marks: tuple[str, ...] = ()) -> pytest.Item:
    found = SimpleNamespace(fixturenames=fixtures, get_closest_marker=lambda name: name in marks)
    return cast(pytest.Item, found)


def test_the_kind_of_a_test_is_told_by_its_fixtures_and_marks() -> None:
    assert kind_of(item("live", "django_db_setup", "stack", marks=("process",))) == Kind.STACK
    assert kind_of(item("kept", "django_db_setup")) == Kind.COMMITTED
    assert kind_of(item("acme", "db", "django_db_setup")) == Kind.ROLLED_BACK
    assert kind_of(item("tmp_path", marks=("django_db",))) == Kind.ROLLED_BACK
    assert kind_of(item("homes", marks=("process",))) == Kind.PROCESSES
    assert kind_of(item("tmp_path")) == Kind.NOTHING
