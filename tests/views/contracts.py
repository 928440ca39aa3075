"""Contracts that ask a person, with what the pages must be careful of: protected fields, and no way back."""

from __future__ import annotations

from dataclasses import replace

from demo.contracts import create_offer, open_ticket, send_mail
from effects.contracts import Asking

asked_mail = replace(send_mail, type="test.asked_mail", asking=Asking(group="Sales approvers"))
free_text = replace(
    open_ticket,
    type="test.free_text",
    title="File a note",
    schema={"type": "object", "properties": {"customer_id": {"type": "string"}}, "required": ["customer_id"]},
    asking=Asking(),
    summary=None,
)

CONTRACTS = (create_offer, open_ticket, send_mail, asked_mail, free_text)
