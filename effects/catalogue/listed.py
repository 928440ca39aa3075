"""Every ready-made contract with what it is for and how a deployment names it: for pages and documents.

Where a module's functions need something that only the deployment knows, the contract here is an example of what they
make: the same promises, with names that belong to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from effects.catalogue import github, idempotency_key, mail, natural_key, stripe, webhook, zendesk
from effects.contracts import EffectContract, Fact


@dataclass(frozen=True)
class Ready:
    """What one provider's module offers. *naming*: what stands in SIGNALBOX_CONTRACTS, or makes what does."""

    provider: str
    naming: str
    contracts: tuple[EffectContract, ...]

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What they rely on, each once."""
        return tuple(dict.fromkeys(fact for contract in self.contracts for fact in contract.facts))


_ANY: dict[str, Any] = {
    "version": 1,
    "schema": {"type": "object"},
    "recipient": "customer",
}

READY = (
    Ready("Stripe v1", "effects.catalogue.stripe:CONTRACTS", stripe.CONTRACTS),
    Ready("Zendesk Support", "effects.catalogue.zendesk:CONTRACTS", zendesk.CONTRACTS),
    Ready(
        "GitHub issues (can only be asked)",
        "effects.catalogue.github.create_issue(owner, repository)",
        (github.create_issue("owner", "repository"),),
    ),
    Ready(
        "JSON over HTTP with Idempotency-Key",
        "effects.catalogue.idempotency_key.by_key(type, …)",
        (
            idempotency_key.by_key(
                "example.by_key", title="Any request with a key", receiver="example", path="/things", **_ANY
            ),
        ),
    ),
    Ready(
        "A record at an address of its own, create-only",
        "effects.catalogue.natural_key.create_only(type, …)",
        (
            natural_key.create_only(
                "example.create",
                title="Make a record",
                receiver="example",
                path="/things/{effect_id}",
                **_ANY,
            ),
        ),
    ),
    Ready(
        "A record at an address of its own, written over",
        "effects.catalogue.natural_key.upsert(type, …)",
        (
            natural_key.upsert(
                "example.upsert",
                title="Write a record",
                receiver="example",
                path="/things/{effect_id}",
                **_ANY,
            ),
        ),
    ),
    Ready(
        "Salesforce, upsert by an external id",
        "effects.catalogue.natural_key.salesforce_upsert(type, record=…, field=…)",
        (
            natural_key.salesforce_upsert(
                "example.salesforce",
                title="Write a record at Salesforce",
                record="Account",
                field="Effect__c",
                **_ANY,
            ),
        ),
    ),
    Ready("Webhooks out", "effects.catalogue.webhook:CONTRACTS, or send_webhook(…)", webhook.CONTRACTS),
    Ready(
        "Mail over SMTP",
        "effects.catalogue.mail.send_mail(sender, domain=…)",
        (mail.send_mail("sender@example.com", domain="example.com"),),
    ),
)
