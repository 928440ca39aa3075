from __future__ import annotations

import pickle

import pytest

from console.kernel import errors
from console.kernel.canonical import Uncanonical
from console.kernel.errors import Invalid, Refusal


def _all_refusals(base: type[Refusal] = Refusal) -> list[type[Refusal]]:
    here = [kind for kind in base.__subclasses__() if kind.__module__.startswith("console.kernel.")]
    return here + [deeper for kind in here for deeper in _all_refusals(kind)]


def test_every_refusal_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in _all_refusals()]
    assert Refusal.code not in codes
    assert len(codes) == len(set(codes)) >= 8


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.BadRequest, 400),
        (errors.Forbidden, 403),
        (errors.NotFound, 404),
        (errors.AlreadyDone, 409),
        (errors.Stale, 409),
        (errors.Invalid, 422),
        (errors.KeyReused, 422),
    ],
)
def test_statuses_are_the_products(kind: type[Refusal], status: int) -> None:
    assert kind.status == status
    assert issubclass(kind, Refusal)


def test_the_answer_names_the_field_only_when_there_is_one() -> None:
    assert errors.Stale("It changed.").as_dict() == {"code": "stale", "message": "It changed."}
    assert errors.Stale("It changed.", field="hash").as_dict()["field"] == "hash"


def test_invalid_lists_every_problem() -> None:
    refusal = Invalid("Two fields are wrong.", errors=[("a", "is missing"), ("b[0]", "is not a number")])
    assert refusal.as_dict()["errors"] == [
        {"path": "a", "message": "is missing"},
        {"path": "b[0]", "message": "is not a number"},
    ]
    assert "errors" not in Invalid("Wrong.").as_dict()


@pytest.mark.parametrize(
    "refusal",
    [errors.NotFound("No.", field="run"), Invalid("No.", errors=[("a", "b")]), Uncanonical("a", "b")],
)
def test_a_refusal_survives_a_trip_between_processes(refusal: Refusal) -> None:
    again = pickle.loads(pickle.dumps(refusal))
    assert (type(again), str(again), again.as_dict()) == (type(refusal), str(refusal), refusal.as_dict())
