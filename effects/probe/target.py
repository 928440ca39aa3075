"""What a probe may touch: one contract, and the live receiver of one workspace. Everything else is refused in words."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from django.db.models import Q

from console.kernel.errors import Invalid, Refusal
from console.kernel.ids import new_id
from console.models import Workspace
from effects.contracts import EffectContract, Payload, contract
from effects.models import Receiver, Standing
from effects.selectors import newest_probe, standing_stops
from effects.states import StopScope

#: How many objects a probe that passes leaves at the receiver.
OBJECTS = 4


class NotProbed(Refusal):
    """The type can't be probed as it stands. Nothing was sent."""

    code = "not_probed"
    status = 422


class NoHarmless(NotProbed):
    """Its contract says nothing of a harmless object."""

    code = "no_harmless"


class NoLiveReceiver(NotProbed):
    """The workspace has no live receiver of the name that the contract uses."""

    code = "no_receiver"


@dataclass(frozen=True)
class Target:
    """A contract and the receiver that it is tried against."""

    workspace: Workspace
    promise: EffectContract
    receiver: Receiver

    @property
    def words(self) -> str:
        """What would be touched, for the person who is asked whether it may be."""
        return (
            f"{self.promise.type} (version {self.promise.version}) at {self.receiver.name}, "
            f"{self.receiver.get_standing_display().lower()}, account {self.receiver.account}, "
            f"{self.receiver.base_url}: {OBJECTS} harmless objects"
        )

    @property
    def has_passed(self) -> bool:
        newest = newest_probe(self.receiver, self.promise.type, self.promise.version)
        return newest is not None and newest.passed


def target_of(workspace: Workspace, effect_type: str) -> Target:
    """The target of a probe of *effect_type*. Raises UnknownType and NotProbed, in words that say what to do."""
    promise = contract(effect_type)
    if promise.harmless is None:
        raise NoHarmless(
            f"The contract of {effect_type} has no harmless object. Give it one: harmless=lambda text: {{…}}, a "
            "payload that does no harm at the receiver, made of a text that is new each time (docs/probe.md)."
        )
    _check_harmless(promise)
    target = Target(workspace, promise, _live_receiver(workspace, promise))
    check_not_stopped(target)
    return target


def _check_harmless(promise: EffectContract) -> None:
    """The harmless object fits its own contract, and is another one each time."""
    stem = new_id("prb").replace("_", "-")
    one, other = harmless(promise, f"{stem}-one"), harmless(promise, f"{stem}-other")
    if one == other:
        raise NotProbed(
            f"The harmless object of {promise.type} is the same for every text: put the text into it, so that a "
            "changed input is a changed one."
        )


def harmless(promise: EffectContract, text: str) -> Payload:
    """The harmless object of that text, checked. Raises NotProbed where it does not fit the contract."""
    assert promise.harmless is not None
    try:
        return promise.validated(promise.harmless(text))
    except Invalid as misfit:
        raise NotProbed(
            f"The harmless object of {promise.type} does not fit its own contract: {misfit.message}"
        ) from None
    except Exception as error:
        raise NotProbed(
            f"The harmless object of {promise.type} can't be made: {type(error).__name__}: {error}"
        ) from error


def _live_receiver(workspace: Workspace, promise: EffectContract) -> Receiver:
    """The one that the ledger sends to. Refused where an isolated one can't be told from it."""
    named = {one.standing: one for one in Receiver.objects.filter(workspace=workspace, name=promise.receiver)}
    live, isolated = named.get(Standing.LIVE), named.get(Standing.ISOLATED)
    if live is None:
        raise NoLiveReceiver(
            f"{promise.type} goes to {promise.receiver}, and the workspace {workspace.id} has no live receiver of "
            "that name."
        )
    if isolated is not None and (isolated.account == live.account or _host(isolated) == _host(live)):
        raise NotProbed(
            f"The isolated receiver {live.name} shares its account or its host with the live one: which of them a "
            "probe would touch can't be told. Correct them first."
        )
    return live


def _host(receiver: Receiver) -> str:
    return urlsplit(receiver.base_url).netloc


def check_not_stopped(target: Target) -> None:
    """Raises NotProbed while a kill switch is on for the type, its receiver or the workspace."""
    on = (
        Q(scope=StopScope.WORKSPACE)
        | Q(scope=StopScope.TYPE, target=target.promise.type)
        | Q(scope=StopScope.RECEIVER, target=target.receiver.name)
    )
    stop = standing_stops(target.workspace.id).filter(on).first()
    if stop is not None:
        raise NotProbed(
            f"A kill switch is on ({stop}): nothing of {target.promise.type} is sent. {stop.reason}"
        )
