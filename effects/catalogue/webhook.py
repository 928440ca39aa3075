"""A webhook, signed as Standard Webhooks has it. The receiver's secret is ``whsec_…``, two of them while one is replaced.

The id of the webhook is the effect's key, the same in every attempt; timestamp and signature are made at sending.
Whether a consumer tells repeats by that id is the consumer's promise, not the standard's: only with its *retention* is
anything sent a second time.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from effects.contracts import EffectContract, Fact
from effects.states import Dedup
from effects.wires import HttpWire

_CHECKED = date(2026, 12, 1)
_SPECIFICATION = "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md"

FACTS = (
    Fact(
        "webhook-id stays the same however often a webhook is sent; consumers are advised to use it as an idempotency "
        "key, for example for five minutes.",
        f"{_SPECIFICATION}#verifying-signatures",
        _CHECKED,
    ),
    Fact(
        "Signed are id, timestamp and body; with several keys while one is replaced.",
        f"{_SPECIFICATION}#webhook-headers-sending-metadata-to-consumers",
        _CHECKED,
    ),
    Fact(
        "A 2xx is success, anything else is failure; 429 asks to wait, 410 wants no more.",
        f"{_SPECIFICATION}#delivery-success-and-failure",
        _CHECKED,
    ),
    Fact(
        "A sender should wait 15 to 30 seconds for the answer.",
        f"{_SPECIFICATION}#request-timeouts",
        _CHECKED,
    ),
    Fact(
        "The body has type, timestamp (of the event, not of the sending) and data.",
        f"{_SPECIFICATION}#payload-structure",
        _CHECKED,
    ),
)


def send_webhook(
    type: str = "webhook.send",
    *,
    version: int = 1,
    title: str = "Send a webhook",
    receiver: str = "webhook",
    path: str = "/",
    recipient: str = "type",
    data: dict[str, Any] | None = None,
    retention: float = 0,
    deadline: float = 20,
    facts: tuple[Fact, ...] = (),
    **more: Any,
) -> EffectContract:
    """Tell a consumer that something happened. *data*: the schema of what goes with it; *recipient*: a field in it.

    *retention*: for how many seconds the consumer promises to know a webhook-id again.
    """
    return EffectContract(
        type=type,
        version=version,
        title=title,
        receiver=receiver,
        wire=HttpWire(
            method="POST",
            path=path,
            auth="webhook",
            key_header="webhook-id",
            reference="",
        ),
        recipient=recipient,
        schema={
            "type": "object",
            "properties": {
                "type": {
                    "type": "string",
                    "pattern": r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$",
                    "title": "What happened",
                },
                "timestamp": {"type": "string", "format": "date-time", "title": "When it happened"},
                "data": data or {"type": "object", "title": "Data"},
            },
            "required": ["type", "timestamp", "data"],
            "additionalProperties": False,
        },
        dedup=Dedup.KEY if retention else Dedup.NONE,
        retention=retention,
        deadline=deadline,
        facts=(*FACTS, *facts),
        **more,
    )


CONTRACTS = (send_webhook(),)
