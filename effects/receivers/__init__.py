"""The only code that speaks to the outside: deliver an effect once, or ask about it."""

from __future__ import annotations

from console.kernel.masking import protected_texts
from effects.contracts import EffectContract, HttpWire
from effects.models import Effect, EffectRevision
from effects.receivers import http, smtp
from effects.receivers.answers import Answer, Finding
from effects.receivers.secrets import SecretMissing
from effects.receivers.secrets import secret as secret_named
from effects.selectors import payload_of, revision_of
from effects.states import Outcome

__all__ = ["Answer", "Finding", "deliver", "look_up"]

#: A part shorter than this, an account's name perhaps, is no secret by itself.
SHORTEST_SECRET = 4


def deliver(contract: EffectContract, effect: Effect, request: bytes, *, send_by: float) -> Answer:
    """Send *request* once to the effect's receiver. Never raises for what the network does: that is in the Answer.

    *send_by*: seconds from now after which not even the first byte may leave.
    """
    receiver = effect.receiver
    try:
        secret = secret_named(receiver.secret_name)
    except SecretMissing as missing:
        return Answer(Outcome.NOT_SENT, problem=str(missing))
    if isinstance(contract.wire, HttpWire):
        answer = http.deliver(
            contract,
            contract.wire,
            base_url=receiver.base_url,
            hosts=receiver.hosts,
            secret=secret,
            request=request,
            key=effect.key,
            send_by=send_by,
        )
    else:
        answer = smtp.deliver(
            contract,
            base_url=receiver.base_url,
            hosts=receiver.hosts,
            secret=secret,
            request=request,
            send_by=send_by,
        )
    return answer.fit_to_keep(_hidden(contract, effect, secret))


def look_up(contract: EffectContract, effect: Effect, revision: EffectRevision, request: bytes) -> Finding:
    """Ask the effect's receiver whether it has it. *revision* is the one whose bytes were sent."""
    if not isinstance(contract.wire, HttpWire):
        return Finding("unclear", sentence="Mail can't be looked up.")
    try:
        secret = secret_named(effect.receiver.secret_name)
    except SecretMissing as missing:
        return Finding("unclear", sentence=str(missing))
    assert revision.effect_id == effect.id
    finding = http.look_up(
        contract,
        contract.wire,
        base_url=effect.receiver.base_url,
        hosts=effect.receiver.hosts,
        secret=secret,
        request=request,
        key=effect.key,
    )
    return finding.fit_to_keep(_hidden(contract, effect, secret))


def _hidden(contract: EffectContract, effect: Effect, secret: str) -> list[str]:
    """What must not stand in words that are kept: the secret and its parts, and the payload's protected values."""
    parts = [part for part in (secret, *secret.split(":")) if len(part) >= SHORTEST_SECRET]
    return [*parts, *protected_texts(payload_of(effect, revision_of(effect)), contract.mask)]
