"""A deployment that uses the ready-made contracts: what SIGNALBOX_CONTRACTS would name."""

from __future__ import annotations

from typing import Any

from effects.catalogue import github, idempotency_key, mail, natural_key, stripe, webhook, zendesk
from effects.contracts import EffectContract
from effects.wires import HttpListing

_NOTE: dict[str, Any] = {
    "type": "object",
    "properties": {"customer": {"type": "string"}, "text": {"type": "string"}},
    "required": ["customer", "text"],
    "additionalProperties": False,
}
_note: dict[str, Any] = {
    "version": 1,
    "title": "Write a note",
    "schema": _NOTE,
    "recipient": "customer",
    "echoes": ("customer", "text"),
}

note_by_key = idempotency_key.by_key(
    "notes.by_key",
    receiver="notes",
    path="/notes",
    external_id="external_id",
    retention=24 * 3600,
    look_up=HttpListing("/notes?since={since}", items="data", matches="external_id", after="after"),
    **_note,
)
#: The service does not say how long it keeps a key.
note_by_unkept_key = idempotency_key.by_key("notes.by_unkept_key", receiver="notes", path="/notes", **_note)
create_note = natural_key.create_only(
    "notes.create", receiver="notes", path="/notes/{effect_id}", authoritative=True, settle=1, **_note
)
upsert_note = natural_key.upsert("notes.upsert", receiver="notes", path="/notes/{effect_id}", **_note)
salesforce_account = natural_key.salesforce_upsert(
    "salesforce.account",
    version=1,
    title="Write an account",
    record="Account",
    field="Effect__c",
    recipient="Name",
    schema={"type": "object", "properties": {"Name": {"type": "string"}}, "required": ["Name"]},
)
issue = github.create_issue("harbor-pine", "ops", creator="signalbox[bot]")
send_mail = mail.send_mail("offers@signalbox.example", domain="signalbox.example", type="catalogue.mail")
#: The consumer tells nobody whether it knows an id again.
told_once = webhook.send_webhook("webhook.once", receiver="consumer", path="/hook")
told_again = webhook.send_webhook(
    "webhook.again", receiver="consumer", path="/hook", recipient="data.customer", retention=3600
)

CONTRACTS: tuple[EffectContract, ...] = (
    *stripe.CONTRACTS,
    *zendesk.CONTRACTS,
    issue,
    note_by_key,
    note_by_unkept_key,
    create_note,
    upsert_note,
    salesforce_account,
    send_mail,
    told_once,
    told_again,
)
