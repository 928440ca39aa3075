"""Made-up things for the styleguide: a company's day, always the same shape, told from now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from console.kernel import words
from console.kernel.masking import mask
from console.kernel.timeline import compress

RUN_ID = "run_01JQ8M4T7ZC3XK9V2B6N5H0WK2"
EFFECT_ID = "eff_7k2m9q4t1v8c3x6b5n0h2j4r7d1f8s3a"

CUSTOMERS: Sequence[tuple[str, str, str, str]] = (
    ("Offer for four P-30 pumps", "Acme GmbH", "sales_offer_agent", "waiting_approval"),
    ("Angebot: Ersatzteile für Werk Linz", "Brunner Pumpen AG", "sales_offer_agent", "failed"),
    ("Rücksendung einer defekten Dichtung", "Hofer & Söhne", "support_agent", "completed"),
    ("Devis pour la maintenance annuelle", "Aquitaine Eaux", "sales_offer_agent", "waiting_effect"),
    ("Where is order 88120?", "Northwind Traders", "support_agent", "running"),
    ("Offer for a filter station", "Kobayashi Kogyo", "sales_offer_agent", "failed"),
    ("Reclamación de la factura 2041", "Talleres Ibarra", "support_agent", "paused"),
    ("Framework contract 2027", "Acme GmbH", "sales_offer_agent", "completed"),
    ("Change of delivery address", "Lindqvist Bygg", "support_agent", "completed"),
    ("Offer for 12 valves DN 80", "Van der Meer BV", "sales_offer_agent", "queued"),
    ("Complaint about leaking seals", "Northwind Traders", "support_agent", "cancelled"),
    ("Offer for a spare rotor", "Brunner Pumpen AG", "sales_offer_agent", "diverged"),
)
FAILURES: Mapping[str, tuple[str, str]] = {
    "Angebot: Ersatzteile für Werk Linz": ("receiver_unreachable", "crm"),
    "Offer for a filter station": ("node_error", "draft_offer"),
    "Offer for a spare rotor": ("", "classify asked another question than the recording"),
}


class SampleForm(forms.Form):
    """One field of each sort."""

    reason = forms.CharField(label="Reason", help_text="One sentence; it stands in the audit.")
    amount = forms.IntegerField(label="Amount in cents", required=False, widget=forms.TextInput)
    note = forms.CharField(label="Answer to the customer", widget=forms.Textarea, required=False)
    mode = forms.ChoiceField(
        label="Mode", choices=[("evidence", "Evidence"), ("simulation", "Simulation"), ("live", "Live")]
    )
    sure = forms.BooleanField(label="I have looked at the receiver", required=False)


def frame(request: HttpRequest) -> dict[str, Any]:
    """What base.html expects of every page, and the addresses of the patterns."""
    to = {name: reverse("styleguide_page", args=[name]) for name in PATTERNS}
    return {
        "to": to,
        "back": to["run_failed"],
        "workspace": {"id": "acme", "name": "Acme Sales"},
        "badges": {"approvals": 3},
        "roles": "Approver, Operator",
        "theme": request.GET.get("theme", ""),
    }


def components() -> dict[str, Any]:
    """Samples for the gallery."""
    now = timezone.now()
    return {
        "tables": [(name, list(table)) for name, table in words.TABLES.items()],
        "failures": list(words.FAILURES),
        "now": now,
        "moments": [now, now - timedelta(minutes=4), now - timedelta(hours=26), now + timedelta(minutes=40)],
        "run_id": RUN_ID,
        "value": state_sample(),
        "tricky": "Pay to AC\u202eEMC\u202c GmbH\u200b, account\u2066 DE02",
        "diff": diff_rows(),
        "message_list": thread(now),
        "lineage": lineage(),
        "metrics": metrics(),
        "sides": ["light", "dark"],
        "swatches": ["ground", "surface", "well", "selected", "line", "ink", "ink-2", "ink-3", "accent"],
        **consequences(),
    }


def state_sample() -> Any:
    """A run's state with everything a tree must be able to show."""
    return mask(
        {
            "customer": {
                "id": "4711",
                "name": "Acme GmbH",
                "email": "ines.wagner@acme.example",
                "vat_id": None,
            },
            "offer": {
                "currency": "EUR",
                "total_minor": 1_240_000,
                "big_reference": 90071992547409931234,
                "discount": 0.12,
                "valid": True,
                "lines": [
                    {"article": "Pump P-30", "quantity": 4, "price_minor": 260_000},
                    {"article": "Service", "quantity": 1, "price_minor": 200_000},
                ],
            },
            "draft": "Dear Ms Wagner,\n\nthank you for your enquiry. We are pleased to offer four pumps P-30 …\n"
            * 4,
            "tags": [],
        },
        ["customer.email"],
    )


def diff_rows() -> list[dict[str, str]]:
    """A difference with each kind of row."""
    return [
        {"path": "offer.discount", "before": "0.12", "after": "0.08", "kind": "changed"},
        {"path": "offer.lines[1]", "before": "Service, 2,000.00 EUR", "after": "", "kind": "removed"},
        {"path": "offer.note", "before": "", "after": "Delivery in week 51", "kind": "added"},
        {"path": "offer.currency", "before": "EUR", "after": "EUR", "kind": "same"},
    ]


def thread(now: datetime) -> list[dict[str, Any]]:
    """A conversation in two languages."""
    return [
        {
            "role": "customer",
            "author": "Ines Wagner, Acme GmbH",
            "at": now - timedelta(minutes=9),
            "text": "Guten Tag,\nbitte ein Angebot über vier Pumpen P-30 mit Inbetriebnahme.",
        },
        {
            "role": "system",
            "at": now - timedelta(minutes=8),
            "text": "sales_offer_agent 7 started for this request",
        },
        {
            "role": "agent",
            "author": "sales_offer_agent",
            "at": now - timedelta(minutes=4),
            "text": "The offer is ready and waits for a person.",
            "note": "Offer O-2041",
            "href": "#",
        },
    ]


def lineage() -> dict[str, Any]:
    """An original with a replay, a branch and the branch's own replay."""
    replay = {"id": "run_01JQ8M9A2B3C4D5E6F7G8H9J0K", "href": "#", "state": "completed", "kind": "replay", "mode": "evidence",
              "why": "Which price list was read?", "who": "Jonas Berg", "kept": "steps 1 to 3", "children": []}  # fmt: skip
    deeper = {"id": "run_01JQ8NC1D2E3F4G5H6J7K8M9NP", "href": "#", "state": "diverged", "kind": "replay", "mode": "evidence",
              "why": "Same answer without the discount?", "who": "Jonas Berg", "kept": "steps 1, 2", "children": []}  # fmt: skip
    branch = {"id": "run_01JQ8NB0C1D2E3F4G5H6J7K8M9", "href": "#", "state": "waiting_approval", "kind": "branch",
              "mode": "simulation", "why": "Discount of 8 instead of 12 %", "who": "Mara Novak", "kept": "steps 1 to 3",
              "children": [deeper]}  # fmt: skip
    return {"id": RUN_ID, "href": "#", "state": "waiting_approval", "kind": "original", "mode": "live", "this": True,
            "why": "Request of 14:02", "children": [replay, branch]}  # fmt: skip


def metrics() -> list[dict[str, Any]]:
    """What needs a person, as Home counts it."""
    return [
        {
            "name": "Approvals for you",
            "value": 3,
            "note": "oldest 4 min, 1 overdue",
            "icon": "user-round-check",
            "tone": "turn",
            "href": "#",
        },
        {
            "name": "Uncertain effects",
            "value": 1,
            "note": "asked the receiver 40 s ago",
            "icon": "circle-question-mark",
            "tone": "unsure",
            "href": "#",
        },
        {
            "name": "Failed runs",
            "value": 2,
            "note": "crm 1, draft_offer 1",
            "icon": "octagon-x",
            "tone": "bad",
            "href": "#",
        },
        {"name": "In review", "value": 0, "note": "", "icon": "shield-alert", "tone": "unsure", "href": "#"},
        {"name": "Diverged", "value": 1, "note": "", "icon": "split", "tone": "warn", "href": "#"},
        {
            "name": "Stuck",
            "value": 0,
            "note": "longest wait 2 s",
            "icon": "hourglass",
            "tone": "wait",
            "href": "#",
        },
    ]


def consequences() -> dict[str, Any]:
    """What Continue would do to the sample run."""
    return {
        "keeps": [
            {"what": "classify, find_customer, draft_offer", "how": "finished; their answers are used again"}
        ],
        "runs": [{"what": "create_offer", "how": "with its recorded model answers"}, {"what": "mail_offer"}],
        "effects": [
            {
                "what": "crm.create_offer",
                "state": "uncertain",
                "how": "the receiver is asked first; sent again under the same key only if it has nothing",
            },
            {"what": "mail.send", "state": "recorded", "how": "will be sent once"},
        ],
        "stays": ["This run keeps its id; its approvals stay as decided."],
        "version_sentence": "sales_offer_agent 7, held by 2 workers, as when it started.",
    }


def runs_page() -> dict[str, Any]:
    """Forty rows."""
    now = timezone.now()
    rows = []
    for n in range(40):
        subject, customer, workflow, state = CUSTOMERS[n % len(CUSTOMERS)]
        code, it = FAILURES.get(subject, ("", ""))
        reason = f"{words.failure_title(code)} · {it}" if code else it
        if state == "waiting_approval":
            reason = "Sales approvers, due in 26 min"
        rows.append({
            "id": f"run_01JQ8M4T7ZC3XK9V2B6N5H{n:04d}", "subject": subject, "customer": customer, "workflow": workflow,
            "version": 7 if workflow.startswith("sales") else 3, "state": state, "reason": reason,
            "kind": "replay" if state == "diverged" else "original", "mode": "evidence" if state == "diverged" else "live",
            "at": now - timedelta(seconds=11 + n * n * 47), "took": timedelta(seconds=2.1 + n * 3.7),
        })  # fmt: skip
    chips = [
        ("Needs a person", 6, True),
        ("Failed", 2, False),
        ("Waiting", 9, False),
        ("Running", 4, False),
        ("All", None, False),
    ]
    return {"rows": rows, "chips": chips}


def run_page() -> dict[str, Any]:
    """The run of the sketch: four steps done or waiting, two to come."""
    now = timezone.now()
    start = now - timedelta(minutes=4, seconds=6)

    def at(seconds: float) -> datetime:
        return start + timedelta(seconds=seconds)

    work = [(at(0.2), at(1.0)), (at(1.0), at(1.1)), (at(1.2), at(3.3)), (at(3.3), at(3.6))]
    axis = compress(work, start, now, live=True)
    place = axis.at(now)

    def bar(n: int, kind: str) -> dict[str, Any]:
        x, width = axis.span(*work[n])
        return {"x": x, "width": width, "kind": kind}

    wait_x, wait_width = axis.span(at(3.6), now)
    steps = [
        {"no": 1, "name": "classify", "state": "completed", "took": 0.8, "bars": [bar(0, "work")], "pills": [{"text": "model", "icon": "bot", "href": "#"}], "href": "#"},
        {"no": 2, "name": "find_customer", "state": "completed", "took": 0.1, "bars": [bar(1, "work")], "pills": [{"text": "crm.customer", "icon": "database", "href": "#"}], "href": "#"},
        {"no": 3, "name": "draft_offer", "state": "completed", "took": 2.1, "bars": [bar(2, "work")], "pills": [{"text": "model", "icon": "bot", "href": "#"}], "href": "#"},
        {"no": 4, "name": "ask_approval", "state": "waiting_approval", "took": timedelta(minutes=4), "current": True, "href": "#",
         "bars": [bar(3, "work"), {"x": wait_x, "width": wait_width, "kind": "turn"}], "pills": [{"text": "approval", "icon": "user-round-check", "href": "#"}]},
        {"no": 5, "name": "create_offer", "state": "pending", "future": True, "bars": [], "pills": [{"text": "crm.create_offer · K", "icon": "send", "effect": True}]},
        {"no": 6, "name": "mail_offer", "state": "pending", "future": True, "bars": [], "pills": [{"text": "mail.send · X", "icon": "mail", "effect": True}]},
    ]  # fmt: skip
    tabs = [
        {"label": "Checkpoints", "count": 5, "href": "#"},
        {"label": "Effects", "count": 2, "href": "#", "current": True},
        {"label": "Approvals", "count": 1, "href": "#"},
        {"label": "Messages", "count": 4, "href": "#"},
        {"label": "State", "href": "#"},
    ]
    return {
        "run_id": RUN_ID, "effect_id": EFFECT_ID, "axis": axis, "now_at": place, "steps": steps, "tabs": tabs, "lineage": lineage(),
        "since": now - timedelta(minutes=4), "started": start, "due": now + timedelta(minutes=26), "value": state_sample(),
    }  # fmt: skip


def failed_page() -> dict[str, Any]:
    """The same run after its worker was lost once and the CRM did not answer."""
    now = timezone.now()
    start = now - timedelta(minutes=11)

    def at(seconds: float) -> datetime:
        return start + timedelta(seconds=seconds)

    spans = [
        (at(0.2), at(1.0)),
        (at(1.0), at(1.1)),
        (at(1.2), at(3.3)),
        (at(190), at(190.4)),
        (at(190.4), at(193)),
        (at(224), at(234)),
    ]
    axis = compress(spans, start, at(234))

    def bar(n: int, kind: str, word: str = "") -> dict[str, Any]:
        x, width = axis.span(*spans[n])
        return {"x": x, "width": width, "kind": kind, "word": word}

    wait_x, wait_width = axis.span(at(3.3), at(190))
    steps = [
        {"no": 1, "name": "classify", "state": "completed", "took": 0.8, "bars": [bar(0, "work")], "pills": [{"text": "model", "icon": "bot", "href": "#"}], "href": "#"},
        {"no": 2, "name": "find_customer", "state": "completed", "took": 0.1, "bars": [bar(1, "work")], "pills": [{"text": "crm.customer", "icon": "database", "href": "#"}], "href": "#"},
        {"no": 3, "name": "draft_offer", "state": "completed", "took": 2.1, "bars": [bar(2, "work")], "pills": [{"text": "model", "icon": "bot", "href": "#"}], "href": "#"},
        {"no": 4, "name": "ask_approval", "state": "completed", "took": 186.7, "href": "#",
         "bars": [{"x": wait_x, "width": wait_width, "kind": "turn"}, bar(3, "work")], "pills": [{"text": "approved by Mara", "icon": "user-round-check", "href": "#"}]},
        {"no": 5, "name": "create_offer", "state": "failed", "took": 43.6, "failing": True, "href": "#", "lost_at": axis.at(at(193)),
         "bars": [bar(4, "idle"), bar(5, "bad")], "pills": [{"text": "crm.create_offer · K", "icon": "send", "effect": True, "href": "#"}],
         "error": "No answer from crm within 10 s, after the body had been sent."},
        {"no": 6, "name": "mail_offer", "state": "pending", "future": True, "bars": [], "pills": [{"text": "mail.send · X", "icon": "mail", "effect": True}]},
    ]  # fmt: skip
    page = run_page()
    page.update(axis=axis, steps=steps, now_at=None, failed_at=at(234), frames=FRAMES, since=at(234))
    return page


FRAMES = """effects/receivers/http.py, line 88, in deliver
    answer = client.send(request)
httpx.ReadTimeout: timed out"""


def approval_page() -> dict[str, Any]:
    """One request: an offer to be made in the CRM."""
    now = timezone.now()
    return {
        "run_id": RUN_ID, "effect_id": EFFECT_ID, "asked": now - timedelta(minutes=4), "due": now + timedelta(minutes=26),
        "diff": diff_rows()[:2], "lines": state_sample()["offer"]["lines"], "payload": state_sample()["offer"],
    }  # fmt: skip


def home_page() -> dict[str, Any]:
    """What needs a person now, the oldest first."""
    now = timezone.now()
    turns = [
        {"state": "waiting_approval", "table": "run", "subject": "Offer for four P-30 pumps", "customer": "Acme GmbH", "what": "Approve 12,400.00 EUR", "turn": "Sales approvers", "at": now - timedelta(minutes=4)},
        {"state": "uncertain", "table": "effect", "subject": "Angebot: Ersatzteile für Werk Linz", "customer": "Brunner Pumpen AG", "what": "crm did not answer after the body was sent", "turn": "Releasers", "at": now - timedelta(minutes=11)},
        {"state": "failed", "table": "run", "subject": "Offer for a filter station", "customer": "Kobayashi Kogyo", "what": "Step draft_offer raised an error", "turn": "Operators", "at": now - timedelta(minutes=38)},
        {"state": "paused", "table": "run", "subject": "Reclamación de la factura 2041", "customer": "Talleres Ibarra", "what": "Approval expired, needs an operator", "turn": "Operators", "at": now - timedelta(hours=2)},
        {"state": "diverged", "table": "run", "subject": "Offer for a spare rotor", "customer": "Brunner Pumpen AG", "what": "classify asked another question than the recording", "turn": "Developers", "at": now - timedelta(hours=5)},
    ]  # fmt: skip
    counts = [3, 5, 2, 8, 12, 9, 14, 18, 11, 7, 15, 22, 19, 13, 16, 21, 9, 6, 4, 8, 10, 12, 17, 6]
    hours = [
        {"x": n * 100 / 24 + 0.6, "width": 3.0, "y": 100 - c * 4, "height": c * 4, "count": c}
        for n, c in enumerate(counts)
    ]
    return {"turns": turns, "metrics": metrics(), "hours": hours, "seen": now - timedelta(seconds=2)}


def dialog_page() -> dict[str, Any]:
    """The form of Continue."""
    return consequences()


PATTERNS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "home": home_page,
    "runs": runs_page,
    "run": run_page,
    "run_failed": failed_page,
    "approval": approval_page,
    "dialog": dialog_page,
}
