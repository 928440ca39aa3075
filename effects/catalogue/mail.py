"""A mail, handed to a mail server over SMTP. Nothing tells repeats apart, and nobody can be asked.

The receiver is named ``mail``: base address ``smtp://host:port``, its secret ``user:password`` where the server asks
for one.
"""

from __future__ import annotations

from datetime import date

from effects.contracts import Asking, EffectContract, Fact
from effects.states import Dedup, Reversibility
from effects.wires import SmtpWire

_CHECKED = date(2026, 12, 1)
_SMTP = "https://www.rfc-editor.org/rfc/rfc5321"

FACTS = (
    Fact(
        "A reply 4yz means that the command was not accepted and nothing was done, and may be asked again; 5yz that it "
        "must not be repeated as it is.",
        f"{_SMTP}#section-4.2.1",
        _CHECKED,
    ),
    Fact(
        "When the reply to the end of the data does not come in time, the mail may have been taken: sending it again "
        "can make a second one. Nothing in the protocol tells the two apart.",
        f"{_SMTP}#section-6.1",
        _CHECKED,
    ),
    Fact(
        "A Message-ID is unique to one version of a message: a reader, not a server, can tell by it.",
        "https://www.rfc-editor.org/rfc/rfc5322#section-3.6.4",
        _CHECKED,
    ),
)


def send_mail(
    sender: str,
    *,
    domain: str,
    type: str = "mail.send",
    receiver: str = "mail",
    deadline: float = 60,
    asking: Asking | None = None,
) -> EffectContract:
    """Send a plain mail to one address, from *sender*; Message-IDs end in *domain*."""
    return EffectContract(
        type=type,
        version=1,
        title="Send a mail",
        receiver=receiver,
        wire=SmtpWire(sender=sender, domain=domain),
        recipient="to",
        schema={
            "type": "object",
            "properties": {
                "to": {"type": "string", "format": "email", "title": "To"},
                "subject": {"type": "string", "title": "Subject"},
                "body": {"type": "string", "title": "Text"},
            },
            "required": ["to", "subject", "body"],
            "additionalProperties": False,
        },
        reversibility=Reversibility.IRREVERSIBLE,
        dedup=Dedup.NONE,
        mask=("to", "body"),
        deadline=deadline,
        asking=asking,
        summary=lambda payload: str(payload["subject"]),
        double=lambda _: {"reply": "not sent: a simulation"},
        facts=FACTS,
    )
