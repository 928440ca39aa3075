"""What each effect type promises: one contract a type, in code, versioned.

A contract is data. It says how the bytes are made and an answer is read (its wire), how the receiver tells repeats,
and what a person must decide. It sends nothing: effects.receivers does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from typing import Any, Protocol, cast

from django.conf import settings
from django.utils.module_loading import import_string
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError

from console.kernel.canonical import JSONValue, to_plain
from console.kernel.errors import Invalid
from console.kernel.masking import compile_paths, mask, mask_text_secrets, protected_texts
from effects.states import Dedup, Reversibility
from effects.wires import HttpLookUp, HttpPreview, HttpWire, Wire

Payload = dict[str, Any]

#: By how much an attempt's lease outlasts its total deadline, and within which its first byte must leave, in seconds.
LEASE_MARGIN = 2.0
#: As long as the columns they are kept in.
LONGEST_RECIPIENT = 300
LONGEST_CUSTOMER = 120
#: How far our clock and a provider's may differ when a key's window is judged.
SKEW = timedelta(seconds=60)
#: Of a published retention only so much is relied on.
RELIED_ON = 0.8


class ContractError(Exception):
    """A contract, or the set of them, can't be used. Raised at start, naming the contract."""


@dataclass(frozen=True)
class Fact:
    """What a provider documents and a contract relies on, where, and when that was last read."""

    says: str
    source: str
    checked: date


@dataclass(frozen=True)
class Asking:
    """That a person must approve, and whom. Times in seconds from the moment the request is committed."""

    group: str = ""
    due: float = 4 * 3600
    expires: float = 3 * 24 * 3600
    grant: float = 24 * 3600


@dataclass(frozen=True)
class Compensates:
    """Which type an effect takes back, and where both say how much (minor units): never more than the original's.

    Without *amount* it takes back the whole, and so once. *reference*: where it names the original by the receiver's
    own number; the ledger writes that, and nobody types it.
    """

    type: str
    amount: str = ""
    original_amount: str = ""
    reference: str = ""


@dataclass(frozen=True)
class EffectContract:
    """The promise of one effect type. Times are in seconds; an unknown *retention* is 0: no second send by key.

    *deadline* is the total time of one delivery; *settle* how long after a send the receiver's look-up may still be
    behind; *tries* and *give_up* bound the deliveries that are proven unsent; *authoritative* says that *looks* looks
    in a row that did not find it prove absence. *synchronous*: a 2xx is the final result; otherwise it is accepted,
    and the result is due *final_within* later. *creates*: each makes an object of its own.

    *double* answers in the receiver's place in a simulation. *harmless* makes a payload that does no harm at the
    receiver, from a text that is new each time: what a probe sends. *compensates*: it takes back another effect.
    *preview* says where to look at what is there now, for who decides about changing it.
    """

    type: str
    version: int
    title: str
    receiver: str
    wire: Wire
    recipient: str
    schema: Mapping[str, Any]
    reversibility: Reversibility = Reversibility.IRREVERSIBLE
    dedup: Dedup = Dedup.NONE
    mask: tuple[str, ...] = ()
    customer: str = ""
    retention: float = 0
    settle: float = 5
    deadline: float = 10
    tries: int = 8
    give_up: float = 3600
    authoritative: bool = False
    looks: int = 1
    synchronous: bool = True
    final_within: float = 24 * 3600
    creates: bool = False
    compensates: Compensates | None = None
    double: Callable[[Payload], JSONValue] | None = None
    harmless: Callable[[str], Payload] | None = None
    asking: Asking | None = None
    preview: HttpPreview | None = None
    summary: Callable[[Payload], str] | None = None
    facts: tuple[Fact, ...] = field(default=(), compare=False)

    @property
    def key_window(self) -> timedelta:
        """How long after the first send the same key may go again: now + deadline + skew < first + 0.8 × retention."""
        return timedelta(seconds=RELIED_ON * self.retention - self.deadline) - SKEW

    @property
    def lease(self) -> float:
        """How long an attempt may stay open: longer than the total deadline, so that a live sender settles first."""
        return self.deadline + LEASE_MARGIN

    def validated(self, payload: Mapping[str, Any]) -> Payload:
        """*payload* in canonical values. Raises Invalid with the path of what does not fit; nothing is written then."""
        plain = to_plain(dict(payload))
        if not isinstance(plain, dict):
            raise self._misfit("payload", "is not an object")
        checked = Draft202012Validator(dict(self.schema), format_checker=FormatChecker())
        errors = [self._told(error) for error in checked.iter_errors(plain)]
        if errors:
            path, message = errors[0]
            raise Invalid(f"{self.type}: {path}: {message}", field=path, errors=errors)
        if not self.recipient_of(plain):
            raise self._misfit(self.recipient, "is not in the payload, and it is the recipient")
        for name, longest in ((self.recipient, LONGEST_RECIPIENT), (self.customer, LONGEST_CUSTOMER)):
            if name and len(self.recipient_of(plain, name)) > longest:
                raise self._misfit(name, f"is longer than {longest} characters")
        if misfit := self.wire.misfit(plain):
            raise self._misfit(*misfit)
        return plain

    def _told(self, error: ValidationError) -> tuple[str, str]:
        """Where and why; without the value where the contract protects it."""
        path = ".".join(str(part) for part in error.absolute_path) or "payload"
        protected = (
            protected_texts({"value": cast(JSONValue, error.instance)}, ["value"])
            if self._protects(path)
            else []
        )
        return path, mask_text_secrets(error.message, protected)

    def _protects(self, path: str) -> bool:
        return any(path == protected or path.startswith(f"{protected}.") for protected in self.mask)

    def _misfit(self, path: str, problem: str) -> Invalid:
        return Invalid(f"{self.type}: {path} {problem}", field=path, errors=[(path, problem)])

    def recipient_of(self, payload: Mapping[str, Any], path: str = "") -> str:
        """What stands at *path*, the recipient's without one; empty where nothing does."""
        value: Any = payload
        for part in (path or self.recipient).split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return "" if value is None else str(value)

    def customer_of(self, payload: Mapping[str, Any]) -> str:
        return self.recipient_of(payload, self.customer) if self.customer else ""

    def shown(self, payload: Payload) -> Any:
        """The payload as those may see it who may not see protected fields."""
        return mask(payload, self.mask)

    def shown_recipient(self, payload: Payload) -> str:
        """The recipient, all but its outline hidden where the contract protects it."""
        whole = self.recipient_of(payload)
        if self.recipient not in self.mask:
            return whole
        name, at, domain = whole.partition("@")
        return f"{name[:1]}•••{at}{domain}" if at else f"{whole[:1]}•••"


class Contracts(Protocol):
    def __getitem__(self, effect_type: str) -> EffectContract: ...


class UnknownType(Invalid):
    code = "unknown_effect_type"


@cache
def contracts() -> Mapping[str, EffectContract]:
    """Every contract of the deployment, by type, from the dotted names in the settings.

    Raises ContractError, naming it, for one that can't be imported, names no receiver, or stands twice.
    """
    found: dict[str, EffectContract] = {}
    for name in settings.CONTRACTS:
        try:
            several = import_string(name.replace(":", "."))
        except Exception as error:
            raise ContractError(f"contracts {name} can't be imported: {error}") from error
        for contract in several:
            if contract.type in found:
                raise ContractError(f"contract {contract.type} stands twice; the second is in {name}")
            if problem := _unusable(contract):
                raise ContractError(f"contract {contract.type} {problem} (in {name})")
            found[contract.type] = contract
    return found


def contract(effect_type: str) -> EffectContract:
    """The contract of *effect_type*; UnknownType when the deployment has none."""
    try:
        return contracts()[effect_type]
    except KeyError:
        raise UnknownType(
            f"There is no contract for the effect type {effect_type!r}.", field="effect_type"
        ) from None


def _unusable(contract: EffectContract) -> str:
    """Why a contract can't be used, in words; empty when it can."""
    wire = contract.wire
    http = wire if isinstance(wire, HttpWire) else None
    if not contract.receiver:
        return "names no receiver"
    if http and (problem := http.unusable()):
        return problem
    if contract.dedup == Dedup.KEY and not (http and http.key_header):
        return "says dedup K but its wire sends no key"
    if contract.dedup in (Dedup.NATURAL, Dedup.QUERY) and not (http and http.look_up):
        return f"says dedup {contract.dedup} but its wire has no look-up"
    if contract.dedup == Dedup.NATURAL and not (http and http.carries_key):
        return "says dedup N but its wire writes the effect's id nowhere"
    if contract.authoritative and not (http and http.look_up):
        return "says that its look-up is authoritative but its wire has none"
    if contract.looks < 1 or contract.tries < 1 or contract.deadline <= 0:
        return "needs at least one look, one try and a deadline above 0"
    if not contract.synchronous and not (http and (http.look_up or http.poll or http.hook)):
        return "says that a 2xx is not the final result but nothing tells it: no poll, no look-up, no webhook"
    shows_commands = http and isinstance(http.look_up, HttpLookUp) and http.look_up.progress
    if contract.authoritative and not contract.synchronous and not shows_commands:
        return "says that its look-up proves absence but it shows no command that is still under way"
    if contract.preview and http is None:
        return "has a preview but its wire can't be asked"
    if contract.final_within <= 0:
        return "needs a time within which its final result is due"
    try:
        compile_paths(contract.mask)
        Draft202012Validator.check_schema(dict(contract.schema))
    except (ValueError, TypeError) as error:
        return f"has a mask that can't be read: {error}"
    except SchemaError as error:
        return f"has a schema that is none: {error.message}"
    return ""
