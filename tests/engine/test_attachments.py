"""Files in states: kept by their content, so that no replay overwrites what another run refers to."""

from __future__ import annotations

from pathlib import Path

import pytest

from effects.models import Attachment
from runs.authoring import attach, read_attachment
from runs.models import SharedPath
from runs.states import Failure, RunStatus
from tests.engine.conftest import Engine
from tests.engine.workflows import State, line


def test_a_file_is_kept_once_and_found_by_what_its_reference_says(engine: Engine) -> None:
    body = b"%PDF-1.7 an offer"

    def writes(state: State) -> State:
        one = attach(body, name="offer.pdf", media_type="application/pdf")
        same = attach(body, name="copy.pdf", media_type="application/pdf")
        return {"log": [one, same]}

    def reads(state: State) -> State:
        return {"log": [read_attachment(state["log"][0]).decode()]}

    run = engine.run(line(writes, reads), {"log": []})
    assert run.status == RunStatus.COMPLETED, run.failure_text
    one, same, text = engine.state_of(run)["log"]
    assert text == body.decode()
    assert (one["attachment"], one["size"]) == (same["attachment"], len(body))
    kept = Attachment.objects.get(workspace=engine.world.workspace, digest=one["attachment"])
    assert body not in bytes(kept.data), "sealed"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ({"attachment": "sha256:" + "0" * 64}, "There is no file"),
        ({"attachment": "../../etc/passwd"}, "no reference to a file"),
        ("offer.pdf", "no reference to a file"),
    ],
)
def test_what_names_no_file_of_this_workspace_is_refused(
    engine: Engine, reference: object, says: str
) -> None:
    def reads(state: State) -> State:
        return {"log": [read_attachment(reference).decode()]}  # type: ignore[arg-type]

    run = engine.run(line(reads), {"log": []})
    assert (run.status, run.failure) == (RunStatus.FAILED, Failure.NODE_ERROR)
    assert says in run.failure_text


@pytest.mark.parametrize(
    ("name", "media_type"),
    [("", "text/plain"), ("a/b", "text/plain"), ("a", "text"), ("a" * 201, "text/plain")],
)
def test_a_file_without_a_proper_name_or_type_is_refused(engine: Engine, name: str, media_type: str) -> None:
    before = Attachment.objects.count()

    def writes(state: State) -> State:
        return {"log": [attach(b"x", name=name, media_type=media_type)]}

    run = engine.run(line(writes), {"log": []})
    assert run.failure == Failure.NODE_ERROR
    assert Attachment.objects.count() == before


def test_a_node_that_writes_to_a_path_of_its_own_is_reported(engine: Engine) -> None:
    # Neither the folder for temporary files nor one that a checkout may stand in.
    shared = Path("/var/tmp") / f"written-by-a-test-{engine.world.workspace.id}.txt"

    def writes(state: State) -> State:
        shared.write_text("overwritten by every replay")
        return {}

    def reads(state: State) -> State:
        return {"log": [shared.read_text()]}

    try:
        run = engine.run(line(writes, reads), {"log": []})
    finally:
        shared.unlink(missing_ok=True)
    assert run.status == RunStatus.COMPLETED, run.failure_text
    told = SharedPath.objects.filter(workflow=run.workflow)
    assert [(one.node, one.path, one.run_id) for one in told] == [("writes", str(shared), run.id)]
