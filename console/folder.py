"""The data folder of `manage.py up`: one user at a time, its generated secrets, and the ports it had last time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class FolderUnusable(Exception):
    """The folder can't be used; the text is one line that says why and what to do."""


def open_folder(path: Path) -> Path:
    """The folder's absolute path, made if it is missing, and closed to other users when made here.

    Raises FolderUnusable when it can't be made, read or written.
    """
    path = path.expanduser().absolute()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = path / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
        os.listdir(path)
    except OSError as error:
        raise FolderUnusable(
            f"the data folder {path} can't be used ({error.strerror}). "
            "Give it to this user, or name another with --data or SIGNALBOX_DATA."
        ) from None
    return path


@contextmanager
def claimed(folder: Path, name: str = "lock") -> Iterator[None]:
    """Hold *folder* alone: the kernel lets go when this process ends in whatever way.

    Raises FolderUnusable when another process holds it.
    """
    try:
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FolderUnusable(f"{folder / name} can't be opened ({error.strerror}).") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            raise FolderUnusable(
                f"the data folder {folder} is in use by process {holder}. Stop that one, or name another folder with --data."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def kept(file: Path, make: dict[str, Callable[[], str]]) -> dict[str, str]:
    """The values kept in *file*, readable by this user only; one that is missing is made and kept from now on.

    Raises FolderUnusable when the file can't be read: its values may be keys, so it is never replaced.
    """
    values: dict[str, str] = {}
    try:
        values = json.loads(file.read_text())
        if not isinstance(values, dict):
            raise ValueError
    except FileNotFoundError:
        pass
    except (OSError, ValueError):
        raise FolderUnusable(
            f"{file} can't be read. Restore it, or clear all data with `make reset`."
        ) from None
    missing = {name: make_one() for name, make_one in make.items() if name not in values}
    if missing:
        values |= missing
        store(file, values)
    return {name: values[name] for name in make}


def store(file: Path, values: dict[str, str]) -> None:
    """Replace *file* in one step, mode 600: a crash leaves the old one or the new one."""
    new = file.with_name(file.name + ".new")
    with suppress(FileNotFoundError):
        new.unlink()
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        json.dump(values, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)


def is_free(port: int) -> bool:
    """Whether nothing listens on *port* of this machine's loopback, IPv4 or IPv6: "localhost" may mean either."""
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            listener = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # no such family here
            continue
        with listener:
            # As servers do: connections of a server that has ended don't keep its port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, port))
            except OSError as error:
                if family == socket.AF_INET6 and not _in_use(error):
                    continue
                return False
    return True


def _in_use(error: OSError) -> bool:
    return error.errno in (errno.EADDRINUSE, errno.EACCES)


def free_port() -> int:
    """A port of the loopback that is free now. Another process may take it first: be ready to ask again."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def kept_ports(file: Path, names: tuple[str, ...]) -> dict[str, int]:
    """A free port for each name: last time's where it is still free, since rows may hold addresses."""
    values: dict[str, str] = {}
    with suppress(FolderUnusable):
        values = kept(file, {name: lambda: str(free_port()) for name in names})
    ports: dict[str, int] = {}
    for name in names:
        port = int(values[name]) if values.get(name, "").isdigit() else 0
        while not port or port in ports.values() or not is_free(port):
            port = free_port()
        ports[name] = port
    store(file, {name: str(port) for name, port in ports.items()})
    return ports


def looks_like_ours(folder: Path) -> bool:
    """Whether `manage.py up` has used *folder*, or it is empty."""
    return (folder / "lock").is_file() or (folder.is_dir() and not any(folder.iterdir()))
