"""The pages around the effect log: which there are, which is open, and how many reviews wait."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from console.access import Actor
from effects.selectors import reviews_seen_by, standing_stops

#: A count beyond this is said as "99+".
COUNTED = 99


def section_of(actor: Actor, here: str) -> dict[str, Any]:
    """The context of the section's own navigation. *here*: the name of the page's address."""
    waiting = reviews_seen_by(actor).filter(closed_at=None)[: COUNTED + 1].count()
    stops = standing_stops(actor.workspace.id).count()
    pages = (
        ("effects", "Log", ""),
        ("reviews", "Reviews", _said(waiting)),
        ("recoveries", "Recoveries", ""),
        ("stops", "Kill switch", _said(stops)),
        ("contracts", "Contracts", ""),
    )
    return {
        "nav": "effects",
        "section": [
            {
                "label": label,
                "href": reverse(name, args=[actor.workspace.id]),
                "count": count,
                "current": name == here,
            }
            for name, label, count in pages
        ],
    }


def _said(count: int) -> str:
    return "" if not count else str(count) if count <= COUNTED else f"{COUNTED}+"
