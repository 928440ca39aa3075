"""How an effect's bytes are made for its receiver, and where the receiver says what it has. Data; nothing is sent here.

Where a field is named, a dotted path leads into objects: ``metadata.effect_id``.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, parseaddr
from typing import Any, Literal
from urllib.parse import quote, urlencode

from console.kernel.canonical import JSONValue, canonicalise

#: One plain address in ASCII: what every mail server takes.
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_FIELD = re.compile(r"\{(\w+)\}")
#: In a wire's path: the effect's key.
KEY_FIELD = "effect_id"
#: In the path of a poll: where the receiver said, as it accepted the command, that it is to be asked about it.
LOCATION = "{location}"
_MARK = re.compile(r"<!-- signalbox-effect: (\S{1,200}) -->")

_TYPES = {"json": "application/json", "form": "application/x-www-form-urlencoded"}


def at(value: Any, path: str) -> Any:
    """What stands at the dotted *path* in *value*; None where nothing does."""
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def marked(text: str, key: str) -> str:
    """*text* with the effect's *key* in a line of its own, which a reader of Markdown does not see."""
    return f"{text}\n\n<!-- signalbox-effect: {key} -->"


def marks(text: str) -> list[str]:
    """The keys that *text* bears: each is a whole line, so that one that is quoted or longer is not taken for it."""
    lines = (_MARK.fullmatch(line.strip()) for line in text.splitlines())
    return [mark[1] for mark in lines if mark]


State = Literal["completed", "failed", "under_way"]


@dataclass(frozen=True)
class Progress:
    """Which field says how far a command is, and which of its values are final. With any other it is under way.

    *failed* must mean that nothing exists and that the receiver will make nothing of it any more. *reason* names the
    field that says why.
    """

    field: str
    completed: frozenset[str]
    failed: frozenset[str] = frozenset()
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.completed or self.completed & self.failed:
            raise ValueError(f"the values of {self.field} have to say which of them mean completed")

    def of(self, command: Any) -> State:
        said = at(command, self.field)
        if not isinstance(said, str):
            return "under_way"
        return "completed" if said in self.completed else "failed" if said in self.failed else "under_way"

    def why(self, command: Any) -> str:
        """The receiver's reason for a failure, in its words; empty where it gave none."""
        said = at(command, self.reason) if self.reason else None
        return said if isinstance(said, str) else ""


@dataclass(frozen=True)
class HookReading:
    """How a receiver's webhook says what became of a command. Every name is a path into the message's JSON.

    *key* leads to the effect's key; a message that bears none there is not about an effect of ours. *progress* says
    how far the command is, *object* where the object stands once it is completed (empty: the message is the object),
    *kind* the message's own type.
    """

    key: str
    progress: Progress
    object: str
    kind: str = "type"

    def object_in(self, message: Any) -> Any:
        return at(message, self.object) if self.object else message


@dataclass(frozen=True)
class HttpLookUp:
    """Where the receiver can be asked about one effect: a path with ``{key}`` or ``{effect_id}``, or the one it was sent to.

    *items* names the list in the answer, empty when the answer is the object itself and 404 means absent. *matches*
    names the field that must equal the effect's key exactly. *more* names the flag of a list that is cut: what is
    missing from such a list may still be there. *object* names what the object itself is wrapped in, *reference* the
    receiver's own id in it where it is called otherwise than in the answer to the sending.

    With *progress* the answer is about the command: *matches* names a field of the command, and *object* is where the
    object stands once the command is completed.
    """

    path: str = ""
    items: str = ""
    more: str = "has_more"
    matches: str = ""
    object: str = ""
    reference: str = ""
    progress: Progress | None = None


@dataclass(frozen=True)
class HttpPreview:
    """Where the receiver shows what is there now of what the effect would change. Asked with a GET, which changes nothing.

    *path* may take fields of the payload and ``{effect_id}``, as the wire's does; empty: it is where the request
    itself goes. A 404 means that nothing is there. *object* names what the record is wrapped in. *called* says what a
    field of the payload is called in the record, where that is otherwise. *replaces*: what is not sent would be gone,
    but for the *own* fields, which the receiver writes itself.
    """

    path: str = ""
    object: str = ""
    called: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = False
    own: tuple[str, ...] = ("id", "created_at", "updated_at")

    def as_sent(self, sent: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
        """What *record* has of the fields that are *sent*, by their names in the payload."""
        named = {name: self.called.get(name, name).split(".") for name in sent}
        found = {
            name: at(record, ".".join(path[:-1])) if path[1:] else record for name, path in named.items()
        }
        return {
            name: found[name][path[-1]]
            for name, path in named.items()
            if isinstance(found[name], Mapping) and path[-1] in found[name]
        }

    def would_go(self, sent: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
        """The fields of *record* that are not sent, where the request replaces the whole of it."""
        if not self.replaces:
            return []
        kept = {*self.own, *(self.called.get(name, name).split(".")[0] for name in sent)}
        return [name for name in record if name not in kept]


@dataclass(frozen=True)
class HttpListing:
    """Where the receiver lists all that was made since a time, page by page: a path with ``{since}``.

    *time* is how ``{since}`` is written: "unix" seconds, or "iso" (RFC 3339, in UTC). *items* names the list in the
    answer, empty when the answer is the list. *matches* names the field that bears an effect's key, empty when the
    wire's marker does.

    The next page: *after* names the parameter that takes the last object's reference, and *more* the flag that says
    there is one; *following* names the next page's address in the answer, and *end* the flag that says there is none;
    with neither, the ``Link`` header tells (RFC 8288, rel="next").
    """

    path: str
    items: str = ""
    matches: str = ""
    time: Literal["unix", "iso"] = "iso"
    after: str = ""
    more: str = "has_more"
    following: str = ""
    end: str = ""

    def address(self, since: datetime) -> str:
        whole = since.astimezone(UTC).replace(microsecond=0)
        text = (
            str(int(whole.timestamp())) if self.time == "unix" else whole.isoformat().replace("+00:00", "Z")
        )
        return self.path.format_map({"since": quote(text, safe="")})


@dataclass(frozen=True)
class HttpWire:
    """One request over HTTP. The path may take fields of the payload, as ``/v1/tickets/{ticket_id}/notes``.

    What is sent: the payload without its *unsent* fields, which are for people, and the *always* fields, in an
    *envelope* when one is named, as JSON or as a form with brackets for what is nested; *headers* that never change,
    such as an API's version. Both are stored with the
    intent and sent again as they are. Credentials are added at sending only: *auth* says how the receiver's secret is
    used. "webhook" signs the request with it (Standard Webhooks), once for each of several secrets.

    What makes a repeat known: *key_header* carries the key, in quotes when *key_quoted* (a structured field's
    string); *external_id* names the field in the body that does; *marker* a field of text that bears it in a line of
    its own; ``{effect_id}`` in the path makes it the object's own address; *create_only* sends ``If-None-Match: *``,
    so that what is there already is never overwritten.

    How an answer is read: *reference* names the receiver's own id, empty when it gives none and a 2xx is all there
    is to know. *echoes* are the fields that a truthful answer repeats: one that differs is a mismatch, never a
    completion. *progress* is the field of the object that says whether it is final; while it is not, the effect is
    accepted only. *command* names the receiver's own number of a command that it has accepted, where that is another
    than the object's.
    *unprocessed* are the statuses that the provider documents as "nothing was done"; *rate_limited* those that mean
    it when they come with a time to wait; *in_progress* those for "your first request with this key is still being
    worked on"; *exists* those for "there is one already". *key_mismatch* are the error codes, *mismatch_statuses* the
    statuses for "this key was used for another request". *errors_cached*: a failure is stored under the key and
    repeated; *replay* is the header, and its value, that marks any repeated answer.

    How it is learned later what became of it: *look_up* asks about an effect whose answer was lost; *poll* how far an
    accepted command is, and without one *look_up* does; its path may take ``{reference}``, or be ``{location}``: the
    address at the receiver that the answer of 202 named in its Location; *hook* is how the
    receiver's webhooks say it. *listing* shows all that was made.
    """

    method: str
    path: str
    encoding: Literal["json", "form"] = "json"
    unsent: tuple[str, ...] = ()
    always: Mapping[str, JSONValue] = field(default_factory=dict)
    envelope: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    auth: Literal["bearer", "basic", "webhook"] = "bearer"
    key_header: str = ""
    key_quoted: bool = False
    external_id: str = ""
    marker: str = ""
    create_only: bool = False
    reference: str = "id"
    echoes: tuple[str, ...] = ()
    progress: Progress | None = None
    command: str = ""
    unprocessed: frozenset[int] = frozenset({429})
    rate_limited: frozenset[int] = frozenset()
    in_progress: frozenset[int] = frozenset()
    exists: frozenset[int] = frozenset({409})
    key_mismatch: frozenset[str] = frozenset({"key_reused", "idempotency_error", "idempotency_key_reused"})
    mismatch_statuses: frozenset[int] = frozenset()
    errors_cached: bool = False
    replay: tuple[str, str] | None = None
    look_up: HttpLookUp | HttpListing | None = None
    poll: HttpLookUp | None = None
    hook: HookReading | None = None
    listing: HttpListing | None = None

    @property
    def carries_key(self) -> bool:
        """Whether what is made at the receiver bears the effect's key, so that it can be told from all others."""
        return bool(self.external_id or self.marker or f"{{{KEY_FIELD}}}" in self.path)

    @property
    def polls_location(self) -> bool:
        """Whether an accepted command is asked about where its answer said."""
        return self.poll is not None and LOCATION in self.poll.path

    def unusable(self) -> str:
        """Why this wire can't do what it says, in words; empty when it can."""
        if any(name.lower() in ("authorization", "cookie") for name in self.headers):
            return "has credentials in its headers, which are stored: a receiver's secret is added at sending"
        if self.auth == "webhook" and self.key_header != "webhook-id":
            return "signs webhooks but its key does not go into webhook-id"
        if isinstance(self.look_up, HttpLookUp) and any(
            said in self.look_up.path for said in ("{reference}", LOCATION)
        ):
            return "looks up by the receiver's reference, which nobody has when the answer was lost: that is for poll"
        if self.polls_location and self.command:
            return "is polled where the receiver says, and names a number of the command: one of them is kept"
        for listing in (self.look_up, self.listing):
            if not isinstance(listing, HttpListing):
                continue
            if "{since}" not in listing.path:
                return "lists what was made without saying since when"
            if not (self.marker or (listing.matches and self.carries_key)):
                return "lists what was made but can't tell what of it is an effect's"
        return ""

    def misfit(self, payload: Mapping[str, Any]) -> tuple[str, str] | None:
        """The field that can't be sent, and why: in the address, in a form, or in the place of the effect's key."""
        for name in _FIELD.findall(self.path):
            if name == KEY_FIELD:
                continue
            if name not in payload:
                return name, "is not in the payload, and the address needs it"
            # A value of dots would lead to another place.
            if not isinstance(payload[name], (str, int)) or not str(payload[name]).strip("."):
                return name, "can't stand in an address"
        if misfit := self._key_misfit(payload):
            return misfit
        if self.encoding == "form":
            sent = {name: value for name, value in payload.items() if name not in self.unsent}
            return next(_unfit_for_form(sent), None)
        return None

    def _key_misfit(self, payload: Mapping[str, Any]) -> tuple[str, str] | None:
        if self.external_id:
            *parents, _ = self.external_id.split(".")
            if at(payload, self.external_id) is not None:
                return self.external_id, "is where the effect's own id is written"
            for count in range(len(parents)):
                path = ".".join(parents[: count + 1])
                if not isinstance(at(payload, path), (Mapping, type(None))):
                    return path, "is no object, and the effect's id is written into it"
        if self.marker:
            text = at(payload, self.marker)
            if not isinstance(text, str):
                return self.marker, "is no text, and the effect's id is written into it"
            if marks(text):
                return self.marker, "bears another effect's id"
        return None

    def render(self, payload: Mapping[str, Any], *, key: str) -> bytes:
        """The request to store and to send again as it is: method, path, headers, body, and what its echo must be."""
        fields = {name: quote(str(value), safe="") for name, value in payload.items()}
        body = self._body(payload, key)
        content = urlencode(list(_form(body))).encode() if self.encoding == "form" else canonicalise(body)
        headers = {**self.headers, "Content-Type": _TYPES[self.encoding]}
        if self.create_only:
            headers["If-None-Match"] = "*"
        echoed = {name: at(payload, name) for name in self.echoes if at(payload, name) is not None}
        return json.dumps(
            {
                "method": self.method,
                "path": self.path.format_map({**fields, KEY_FIELD: quote(key, safe="")}),
                "headers": headers,
                "body": base64.b64encode(content).decode(),
                "echoes": echoed,
            }
        ).encode()

    def sent_of(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that the body is made of, but for the effect's own id."""
        return {name: value for name, value in payload.items() if name not in self.unsent} | dict(self.always)

    def _body(self, payload: Mapping[str, Any], key: str) -> dict[str, Any]:
        body = self.sent_of(payload)
        if self.external_id:
            body = _with(body, self.external_id.split("."), key)
        if self.marker:
            body = _with(body, self.marker.split("."), marked(at(payload, self.marker), key))
        return {self.envelope: body} if self.envelope else body


def _with(value: Mapping[str, Any], path: list[str], new: str) -> dict[str, Any]:
    """A copy of *value* with *new* at *path*."""
    first, *rest = path
    return {**value, first: _with(value.get(first) or {}, rest, new) if rest else new}


def _form(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The pairs of a form in one order, always: names sorted, ``lines[0][amount]`` for what is nested."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from _form(value[key], f"{name}[{key}]" if name else key)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _form(one, f"{name}[{index}]")
    else:
        yield name, value if isinstance(value, str) else canonicalise(value).decode()


def _unfit_for_form(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """A form has text and numbers: no null, nothing empty, and no brackets of a name's own."""
    if value is None or value == {} or value == []:
        yield path, "is empty, and a form can't say so"
    elif isinstance(value, Mapping):
        for key, one in value.items():
            inner = f"{path}.{key}" if path else key
            if "[" in key or "]" in key:
                yield inner, "has a bracket in its name, which a form can't carry"
            yield from _unfit_for_form(one, inner)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _unfit_for_form(one, f"{path}.{index}")


@dataclass(frozen=True)
class SmtpWire:
    """A mail. One Message-ID an effect, so that a reader can at least see that two are the same."""

    sender: str
    to: str = "to"
    subject: str = "subject"
    body: str = "body"
    domain: str = "signalbox.invalid"

    def misfit(self, payload: Mapping[str, Any]) -> tuple[str, str] | None:
        """The header that can't be made, and why. Exactly one plain address: another list would reach only some."""
        for name in (self.to, self.subject):
            if any(not character.isprintable() for character in str(payload.get(name, ""))):
                return name, "holds a line break or another control character"
        address = str(payload.get(self.to, ""))
        name, parsed = parseaddr(address)
        if name or parsed != address or not _ADDRESS.fullmatch(address):
            return self.to, "is not exactly one mail address"
        return None

    def render(self, payload: Mapping[str, Any], *, key: str) -> bytes:
        """The mail to store, with its own date and Message-ID, and to send again as it is."""
        message = EmailMessage(policy=SMTP)
        message["From"] = self.sender
        message["To"] = payload[self.to]
        message["Subject"] = payload[self.subject]
        message["Date"] = formatdate()
        message["Message-ID"] = f"<{key}@{self.domain}>"
        message["X-Effect-ID"] = key
        message.set_content(payload[self.body])
        return json.dumps(
            {
                "sender": self.sender,
                "to": [payload[self.to]],
                "message": base64.b64encode(message.as_bytes()).decode(),
            }
        ).encode()


Wire = HttpWire | SmtpWire
