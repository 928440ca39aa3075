"""The ledger's rows as they stand, read in one query, and what must never change of them.

They are read again only when a statement may have changed one: an example is alone in its transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from weakref import WeakSet

from django.db import connection

#: Each table of the ledger: how its rows belong to the workspace, which columns are looked at, and when it is final.
_OF_EFFECT = "effect_id IN (SELECT id FROM effects_effect WHERE workspace_id = $1)"
_IN_WORKSPACE = "workspace_id = $1"
_TABLES: dict[str, tuple[str, str, str, str]] = {
    "effect": (
        "effects_effect",
        _IN_WORKSPACE,
        "status, sub_state, unresolved, fence, tries, revision, request_hash, needs_approval, run_id, effect_type, "
        "command_id, dedup, provider_reference, lease_until, due_at, final_by, grant_hash, grant_revision, "
        "successor_of_id, compensates_id, absent_at, key_until, grant_until, give_up_at",
        "status IN ('completed', 'failed')",
    ),
    "attempt": (
        "effects_effectattempt",
        _OF_EFFECT,
        "effect_id, n, fence, revision, request_hash, outcome, answer_status, origin",
        "ended_at IS NOT NULL",
    ),
    "observation": ("effects_observation", _OF_EFFECT, "effect_id, kind, found", "true"),
    "revision": ("effects_effectrevision", _OF_EFFECT, "effect_id, n, request_hash, by_id", "true"),
    "command": ("effects_command", _IN_WORKSPACE, "run_id, command_key", "false"),
    "review": (
        "effects_review",
        _IN_WORKSPACE,
        "effect_id, reason, closed_at, settled_as",
        "closed_at IS NOT NULL",
    ),
    "approval": (
        "effects_approval",
        _IN_WORKSPACE,
        "effect_id, revision, payload_hash, status, order_id",
        "status <> 'pending'",
    ),
    "decision": (
        "effects_approvaldecision",
        "approval_id IN (SELECT id FROM effects_approval WHERE workspace_id = $1)",
        "approval_id, decision, by_id, payload_hash",
        "true",
    ),
    "audit": ("console_auditevent", _IN_WORKSPACE, "verb", "true"),
    "order": (
        "effects_order",
        _IN_WORKSPACE,
        "effect_id, sends_id, kind, status, overrides, attempts, asked_by_id, second_by_id",
        "ended_at IS NOT NULL",
    ),
    "hook message": ("effects_hookmessage", _OF_EFFECT, "effect_id", "true"),
    "question": ("effects_lookrequest", _OF_EFFECT, "effect_id, ended_at", "ended_at IS NOT NULL"),
    "stop": ("effects_stop", _IN_WORKSPACE, "scope, target, lifted_at", "lifted_at IS NOT NULL"),
}
_QUERY = "SELECT " + ", ".join(
    f"(SELECT json_agg(r) FROM (SELECT id, ({final}) AS final, md5(t::text) AS digest, {columns} "
    f'FROM {table} t WHERE {belongs} ORDER BY id) r) AS "{name}"'
    for name, (table, belongs, columns, final) in _TABLES.items()
)

Row = dict[str, Any]


@dataclass
class Rows:
    """One look at every row of one workspace's ledger."""

    by_table: dict[str, dict[Any, Row]]
    _of_effect: dict[str, dict[str, list[Row]]] = field(default_factory=dict)

    def __getitem__(self, table: str) -> dict[Any, Row]:
        return self.by_table[table]

    def of(self, table: str, effect_id: str) -> list[Row]:
        """The rows of *table* that belong to an effect, oldest first."""
        if table not in self._of_effect:
            grouped: dict[str, list[Row]] = defaultdict(list)
            for row in self.by_table[table].values():
                grouped[row["effect_id"]].append(row)
            self._of_effect[table] = grouped
        return self._of_effect[table].get(effect_id, [])

    def moment(self, effect_id: str, column: str) -> datetime | None:
        """A time in an effect's row."""
        text = self["effect"][effect_id][column]
        return datetime.fromisoformat(text) if text else None

    def open_reviews(self, effect_id: str) -> list[str]:
        return [row["reason"] for row in self.of("review", effect_id) if row["closed_at"] is None]


#: The connections on which the query is prepared: planning it takes longer than running it.
_prepared: WeakSet[Any] = WeakSet()
#: What changes no row. Everything else may, were it not for what it says of itself: an UPDATE that met none.
_READS = ("SELECT", "EXECUTE rows_of_the_model", "SAVEPOINT", "RELEASE SAVEPOINT")


@dataclass
class Reading:
    """Reads one workspace's rows, and knows whether a statement since then may have changed any."""

    workspace_id: str
    _read: Rows | None = None

    def rows(self) -> Rows:
        if self._read is None:
            self._read = _read(self.workspace_id)
        return self._read

    @contextmanager
    def notices(self) -> Iterator[None]:
        """Within it, it sees every statement. A rollback counts as a change: what was read may be undone."""

        def notice(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
            result = execute(sql, params, many, context)
            if not sql.startswith(_READS) and context["cursor"].rowcount != 0:
                self._read = None
            return result

        with connection.execute_wrapper(notice):
            yield


def _read(workspace_id: str) -> Rows:
    with connection.cursor() as cursor:
        if connection.connection not in _prepared:
            cursor.execute(f"PREPARE rows_of_the_model (text) AS {_QUERY}")
            _prepared.add(connection.connection)
        cursor.execute("EXECUTE rows_of_the_model (%s)", [workspace_id])
        found = cursor.fetchone()
    assert found is not None
    return Rows(
        {name: {row["id"]: row for row in rows or ()} for name, rows in zip(_TABLES, found, strict=True)}
    )
