"""The data folder: one holder, secrets that are kept, ports that stay."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from console.folder import FolderUnusable, claimed, is_free, kept, kept_ports, open_folder


def test_a_file_in_its_place_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderUnusable, match="can't be used") as refused:
        open_folder(tmp_path / "file")
    assert "\n" not in str(refused.value)
    assert "--data" in str(refused.value)


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(FolderUnusable, match="can't be used"):
        open_folder(Path("/proc/signalbox"))


def test_it_is_held_by_one(tmp_path: Path) -> None:
    with claimed(tmp_path), pytest.raises(FolderUnusable, match="in use"), claimed(tmp_path):
        pass
    with claimed(tmp_path):
        pass


def test_secrets_are_made_once_and_for_this_user_only(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    first = kept(file, {"A": lambda: "one"})
    assert first == {"A": "one"}
    assert kept(file, {"A": lambda: "two", "B": lambda: "three"}) == {"A": "one", "B": "three"}
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_damaged_file_of_secrets_is_never_replaced(tmp_path: Path, content: str) -> None:
    file = tmp_path / "secrets.json"
    file.write_text(content)
    with pytest.raises(FolderUnusable, match="Restore it"):
        kept(file, {"A": lambda: "one"})
    assert file.read_text() == content


def test_ports_stay_while_they_are_free(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    first = kept_ports(file, ("one", "two"))
    assert len(set(first.values())) == 2
    assert kept_ports(file, ("one", "two")) == first
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first["one"]))
        taken.listen()
        assert not is_free(first["one"])
        second = kept_ports(file, ("one", "two"))
    assert second["one"] != first["one"]
    assert second["two"] == first["two"]
    assert json.loads(file.read_text())["one"] == str(second["one"])
