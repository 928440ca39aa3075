"""The page for people: what arrived, what was made, what is still ordered to go wrong. No scripts.

``frame`` and ``STYLE`` also dress the pages of the model endpoint and the mail catcher.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import urlencode

from demo.receiver import faults, records
from demo.receiver.loopback import Answer, Request
from demo.receiver.store import Store

SHOWN: Final = 50
#: Columns of numbers, by their heads.
NUMBERS: Final = frozenset({"Amount", "Times left", "Tokens"})

STYLE: Final = """
:root { color-scheme: light dark; --ground: #f6f7f8; --sheet: #fff; --ink: #1b2025; --soft: #5d6770; --line: #dde1e5;
  --good: #12703c; --bad: #a5281b; --wait: #8a5a00; --link: #1a56a8; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --sheet: #1c2024; --ink: #e6e9ec; --soft: #9aa5ae;
  --line: #31373d; --good: #5fce8f; --bad: #ff8a7a; --wait: #f0bb5a; --link: #85b6f5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; }
header, main { max-width: 1440px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 20px; } main { padding-bottom: 48px; }
h1 { font-size: 20px; margin: 0; } h1 small, p.lead { color: var(--soft); font-size: 14px; font-weight: 400; }
p.lead { margin: 4px 0 14px; max-width: 80ch; }
h2 { font-size: 15px; margin: 26px 0 8px; }
a { color: var(--link); }
nav { display: flex; flex-wrap: wrap; gap: 6px; }
nav a { border: 1px solid var(--line); border-radius: 999px; padding: 3px 11px; background: var(--sheet); text-decoration: none; }
nav a[aria-current] { border-color: var(--link); font-weight: 600; }
.sheet { background: var(--sheet); border: 1px solid var(--line); border-radius: 8px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 7px 12px; border-top: 1px solid var(--line); vertical-align: top; }
th { border-top: 0; color: var(--soft); font-weight: 500; font-size: 12.5px; white-space: nowrap; }
td { font-variant-numeric: tabular-nums; }
code, pre { font: 12.5px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; margin: 6px 0; max-height: 320px; overflow: auto; }
.number { text-align: right; } .when { color: var(--soft); } .number, .when, .name { white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .wait { color: var(--wait); }
.empty { padding: 14px 12px; color: var(--soft); margin: 0; }
summary { cursor: pointer; }
"""

PAGE_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


def style_sheet() -> Answer:
    return Answer(200, STYLE.encode(), {"Content-Type": "text/css; charset=utf-8"})


def frame(title: str, lead: str, body: str, *, refresh: int | None = None) -> Answer:
    """A whole page. *body* is HTML, *title* and *lead* are text. With *refresh* it loads itself again after that many seconds."""
    again = f'<meta http-equiv="refresh" content="{refresh:d}">' if refresh else ""
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'{again}<title>{escape(title)}</title><link rel="stylesheet" href="/style.css"></head><body>'
        f'<header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p></header><main>{body}</main></body></html>'
    )
    return Answer(200, page.encode(), PAGE_HEADERS)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> str:
    """A titled table; cells are HTML. Without rows, the sentence *empty*."""
    lines = ["<tr>" + "".join(row) + "</tr>" for row in rows]
    inner = (
        "<table><thead><tr>" + "".join(map(column_head, heads)) + "</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
        if lines
        else f'<p class="empty">{escape(empty)}</p>'
    )
    return f'<h2>{escape(caption)}</h2><div class="sheet">{inner}</div>'


def column_head(head: str) -> str:
    kind = ' class="number"' if head in NUMBERS else ""
    return f'<th scope="col"{kind}>{escape(head)}</th>'


def cell(text: object, kind: str = "") -> str:
    return f'<td class="{kind}">{escape(str(text))}</td>' if kind else f"<td>{escape(str(text))}</td>"


def code(text: object) -> str:
    return f"<td><code>{escape(str(text))}</code></td>"


def when(moment: str) -> str:
    """Time of day, the whole UTC moment on hover."""
    return f'<td class="when"><time datetime="{escape(moment)}" title="{escape(moment)}">{escape(moment[11:19])}</time></td>'


def folded(summary: str, text: str) -> str:
    return f"<td><details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details></td>"


def home(store: Store, request: Request) -> Answer:
    """``GET /?account=…&refresh=SECONDS``."""
    account = request.query.get("account", "")
    refresh = request.query.get("refresh", "")
    asked = {"account": account} if account else {}
    body = (
        choose(store, account, refresh)
        + effects_table(records.effects(store, asked, newest=SHOWN))
        + requests_table(records.requests(store, asked, newest=SHOWN))
        + faults_table(faults.pending(store, account or None))
    )
    return frame(
        "Test receiver",
        "The outside business system of the demo. Nothing here is part of Signalbox: what you see is what really"
        " arrived, and what was really made, as the receiving side recorded it.",
        body,
        refresh=min(int(refresh), 3600) if refresh.isascii() and refresh.isdigit() else None,
    )


def choose(store: Store, account: str, refresh: str) -> str:
    """Links: all accounts, each account, and the page that loads itself again."""
    entries = [("All accounts", "", account == "")]
    entries += [
        (f"{row['account']} · {row['effects']} made", row["account"], row["account"] == account)
        for row in records.accounts(store)[:30]
    ]
    links = [link(words, {"account": name, "refresh": refresh}, current) for words, name, current in entries]
    links.append(
        link("Load again every 3 s", {"account": account, "refresh": "" if refresh else "3"}, bool(refresh))
    )
    return f'<nav aria-label="Account">{"".join(links)}</nav>'


def link(words: str, query: dict[str, str], current: bool) -> str:
    mark = ' aria-current="true"' if current else ""
    address = "/?" + urlencode({name: value for name, value in query.items() if value})
    return f'<a href="{escape(address)}"{mark}>{escape(words)}</a>'


def effects_table(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            when(effect["made_at"]),
            cell(effect["account"], "name"),
            cell(f"{effect['resource'].removesuffix('s')} {effect['action']}"),
            code(effect["object_id"]),
            cell(amount(effect["document"]), "number"),
            code(effect["key"] or "no key"),
            code(effect["external_id"] or "none"),
            folded("body", json.dumps(effect["document"], ensure_ascii=False, indent=1)),
        )
        for effect in found
    ]
    heads = ("Time (UTC)", "Account", "Effect", "Object", "Amount", "Idempotency key", "external_id", "")
    return table("Effects made", heads, rows, "Nothing has been made yet.")


def amount(document: dict[str, Any]) -> str:
    minor, currency = document.get("amount_minor"), document.get("currency", "")
    if not isinstance(minor, int):
        return ""
    if currency in ("JPY", "KRW"):
        return f"{minor:,} {currency}"
    return f"{'-' if minor < 0 else ''}{abs(minor) // 100:,}.{abs(minor) % 100:02} {currency}".strip()


def requests_table(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            when(seen["received_at"]),
            cell(seen["account"] or "unknown", "name"),
            code(f"{seen['method']} {seen['path']}{'?' + urlencode(seen['query']) if seen['query'] else ''}"),
            answer_cell(seen["status"]),
            cell(
                "made an effect" if seen["made_effect"] else "nothing made",
                "good" if seen["made_effect"] else "",
            ),
            cell(seen["fault"] or ""),
            code(seen["key"] or ""),
            folded(f"sha256 {seen['body_sha256'][:12]}…", seen["body"]) if seen["body"] else cell(""),
        )
        for seen in found
    ]
    heads = (
        "Time (UTC)",
        "Account",
        "Request",
        "Answered",
        "Effect",
        "Fault played",
        "Idempotency key",
        "Body",
    )
    return table("Requests received", heads, rows, "No request has come yet.")


def answer_cell(status: int | str | None) -> str:
    if status is None:
        return cell("… not yet", "wait")
    good = isinstance(status, int) and status < 300
    return cell(status, "good" if good else "bad")


def faults_table(pending: list[dict[str, Any]]) -> str:
    known = {"id", "account", "kind", "match", "remaining"}
    rows = [
        (
            cell(order["account"], "name"),
            cell(order["kind"]),
            code(json.dumps(order["match"], ensure_ascii=False)),
            code(
                json.dumps(
                    {name: value for name, value in order.items() if name not in known}, ensure_ascii=False
                )
            ),
            cell(order["remaining"], "number"),
        )
        for order in pending
    ]
    heads = ("Account", "Fault", "Fits", "Options", "Times left")
    return table("Ordered to go wrong", heads, rows, "Nothing: every request is answered by the rules.")
