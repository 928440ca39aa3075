"""Whether Postgres may lose what it has confirmed. If it may, nothing irreversible is sent.

The attempt is committed before the first byte leaves. Where that commit can be lost in a crash, the effect comes back
as *ready* and is sent a second time. By Postgres' documentation (postgresql.org/docs/18/runtime-config-wal.html):

- ``synchronous_commit``: with *off* a commit is confirmed before it is on disk. *local*, *remote_write*, *on* and
  *remote_apply* all wait for the local disk; they differ in what they await of a synchronous standby.
- ``fsync`` off: nothing is forced to the disk at all. ``full_page_writes`` off: a crash may leave pages that the log
  can't repair; "the risks are similar to turning off fsync".

What a standby has is not judged here. By default replication is asynchronous, and a standby that is promoted may lack
the last commits (docs/18/warm-standby.html, "Streaming Replication"). An ordinary role can't read how each standby is
fed (pg_stat_replication shows it to pg_read_all_stats alone), and log shipping shows nowhere. But a promotion is seen:
it begins a new timeline, and effects.restored then freezes sending.
"""

from __future__ import annotations

from django.conf import settings
from django.db import connection
from django.db.models import Q

from effects.states import Reversibility

#: The settings that decide, and the values of each that keep what was confirmed.
SAFE: dict[str, tuple[str, ...]] = {
    "synchronous_commit": ("on", "local", "remote_write", "remote_apply"),
    "fsync": ("on",),
    "full_page_writes": ("on",),
}


def problem() -> str:
    """Why a commit of this session may be lost, in words that name the setting; empty when none may.

    In the claim's transaction it is the setting that its COMMIT will go by. Empty too where SIGNALBOX_DURABLE_ONLY is
    no, which production does not accept.
    """
    if not settings.DURABLE_ONLY:
        return ""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join('current_setting(%s)' for _ in SAFE)}", list(SAFE))
        values = dict(zip(SAFE, cursor.fetchone(), strict=True))
    wrong = [f"{name} = {value}" for name, value in values.items() if value not in SAFE[name]]
    if not wrong:
        return ""
    return (
        f"Postgres may lose what it has confirmed ({', '.join(wrong)}), so nothing irreversible is sent. "
        "It goes on by itself once that is set right."
    )


def held_back() -> Q:
    """The effects that are not sent now, because this database might forget that they were."""
    return Q(reversibility=Reversibility.IRREVERSIBLE) if problem() else Q(pk__in=[])
