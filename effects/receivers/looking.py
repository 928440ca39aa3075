"""Ask a receiver what it has: about one effect, or everything that was made since a time. Has no effect there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from effects.contracts import EffectContract
from effects.receivers.answers import Finding, fit_to_keep
from effects.receivers.commands import of_command, of_object
from effects.receivers.exchange import check_scheme, credentials, exchange
from effects.receivers.reading import excerpt, keys_of, parsed, reference_of, retry_after
from effects.receivers.wire import Deadline, Refused
from effects.wires import KEY_FIELD, LOCATION, HttpListing, HttpLookUp, HttpPreview, HttpWire, at

#: More pages are not read in one look: the list counts as cut.
PAGES_OF_A_LOOK = 20
_NEXT = re.compile(r'<([^>]*)>(?:;[^,]*)?;\s*rel="?next"?(?=[;,\s]|$)', re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """Where a receiver is, and what it is asked with."""

    base_url: str
    hosts: list[str]
    secret: str


@dataclass(frozen=True)
class Listed:
    """One object of a receiver's list: the effects' keys that it bears (none, one, or a text's several), its own id, itself."""

    keys: tuple[str, ...]
    reference: str
    object: dict[str, Any]


@dataclass(frozen=True)
class Listing:
    """What a receiver listed. *cut* says, in words, why it may have more; empty when this is all of it.

    *retry_after*: for how many seconds it does not want to be asked, where that is why.
    """

    objects: tuple[Listed, ...]
    cut: str = ""
    retry_after: float | None = None

    def fit_to_keep(self, hidden: Iterable[str]) -> Listing:
        return replace(self, cut=fit_to_keep(self.cut, hidden))


@dataclass(frozen=True)
class Page:
    """One page of a list, and where the next one is: empty after the last. *cut*: why it could not be read, in words."""

    objects: tuple[Listed, ...] = ()
    following: str = ""
    cut: str = ""

    def fit_to_keep(self, hidden: Iterable[str]) -> Page:
        return replace(self, cut=fit_to_keep(self.cut, hidden))


class _Unread(Exception):
    """A page that can't be read. The message says why, for a person."""

    def __init__(self, why: str, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


def look_up(
    contract: EffectContract, wire: HttpWire, place: Place, *, request: bytes, key: str, since: datetime
) -> Finding:
    """Ask the receiver about the effect with exactly this *key*, sent not before *since*."""
    stored = json.loads(request)
    sent = stored["echoes"]
    if wire.look_up is None:
        return Finding("unclear", sentence="This receiver can't be asked.")
    if isinstance(wire.look_up, HttpListing):
        listing = list_since(contract, wire, wire.look_up, place, since=since, pages=PAGES_OF_A_LOOK)
        exact = [one.object for one in listing.objects if one.keys == (key,)]
        shared = any(key in one.keys for one in listing.objects if len(one.keys) > 1)
        cut = "An object bears this id and others' beside it." if shared else listing.cut
        finding = _finding(contract, wire, sent, key, exact, cut=cut)
        return replace(finding, retry_after=listing.retry_after)
    path = wire.look_up.path.format_map({"key": quote(key, safe=""), "effect_id": quote(key, safe="")})
    return _asked(contract, wire, wire.look_up, place, path or stored["path"], sent, key)


def poll(
    contract: EffectContract,
    wire: HttpWire,
    asked: HttpLookUp,
    place: Place,
    *,
    request: bytes,
    key: str,
    reference: str,
) -> Finding:
    """Ask how far an accepted command is: by its *key*, or by the *reference* with which it was accepted.

    That is the receiver's number of the command, or the address that it gave to ask at.
    """
    if "{reference}" in asked.path and not reference.strip("."):
        return Finding("unclear", sentence="The receiver accepted it without a number to ask by.")
    if LOCATION in asked.path and not reference.startswith("/"):
        return Finding("unclear", sentence="The receiver accepted it without an address to ask at.")
    by_key = quote(key, safe="")
    path = asked.path.format_map(
        {"key": by_key, "effect_id": by_key, "reference": quote(reference, safe=""), "location": reference}
    )
    stored = json.loads(request)
    return _asked(contract, wire, asked, place, path or stored["path"], stored["echoes"], key)


def preview(
    contract: EffectContract,
    wire: HttpWire,
    asked: HttpPreview,
    place: Place,
    *,
    request: bytes,
    payload: Mapping[str, Any],
    key: str,
    within: float,
) -> Finding:
    """What is there now of what *request* would change: found with the record as its body, absent, or unclear."""
    fields = {
        name: quote(str(value), safe="")
        for name, value in payload.items()
        if isinstance(value, (str, int)) and str(value).strip(".")
    }
    try:
        path = asked.path.format_map({**fields, KEY_FIELD: quote(key, safe="")})
    except KeyError as missing:
        return Finding("unclear", sentence=f"The payload's {missing.args[0]} does not say where to look.")
    deadline = Deadline(min(within, contract.deadline))
    try:
        url = place.base_url.rstrip("/") + (path or json.loads(request)["path"])
        status, _, body = _get(wire, place, url, deadline)
    except Refused as refused:
        return Finding("unclear", sentence=f"{refused}.")
    except Exception as error:
        return Finding(
            "unclear", sentence=f"The receiver gave no usable answer in time: {type(error).__name__}."
        )
    if status == 404:
        return Finding("absent", sentence="The receiver has nothing there.")
    answer = parsed(body)
    record = at(answer, asked.object) if asked.object else answer
    if not 200 <= status < 300 or not isinstance(record, dict):
        return Finding("unclear", sentence=f"The receiver answered {status}, which shows no record.")
    return Finding("found", body=record)


def _asked(
    contract: EffectContract,
    wire: HttpWire,
    asked: HttpLookUp,
    place: Place,
    path: str,
    sent: dict[str, Any],
    key: str,
) -> Finding:
    deadline = Deadline(contract.deadline)
    try:
        status, headers, body = _get(wire, place, place.base_url.rstrip("/") + path, deadline)
    except Refused as refused:
        return Finding("unclear", sentence=f"{refused}.")
    except Exception as error:
        return Finding("unclear", sentence=f"The receiver did not answer: {type(error).__name__}")
    finding = _read(contract, wire, asked, sent, key, status, body)
    return replace(finding, retry_after=retry_after(headers))


def _read(
    contract: EffectContract,
    wire: HttpWire,
    asked: HttpLookUp,
    sent: dict[str, Any],
    key: str,
    status: int,
    body: bytes,
) -> Finding:
    if status == 404 and not asked.items:
        return Finding("absent", sentence="The receiver has no record of it.")
    answer = parsed(body)
    if not 200 <= status < 300 or not isinstance(answer, dict):
        return Finding("unclear", sentence=f"The receiver answered {status}: {excerpt(body)}")
    return _found(contract, wire, asked, sent, key, answer)


def _found(
    contract: EffectContract,
    wire: HttpWire,
    asked: HttpLookUp,
    sent: dict[str, Any],
    key: str,
    answer: dict[str, Any],
) -> Finding:
    listed = at(answer, asked.items) if asked.items else [answer]
    if asked.object and not asked.progress and isinstance(listed, list):
        listed = [at(one, asked.object) for one in listed]
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        return Finding("unclear", sentence="The receiver's answer does not say whether it has it.")
    # Exactly the key: never a prefix or a substring, whatever the receiver's search makes of it.
    exact = [one for one in listed if not asked.matches or at(one, asked.matches) == key]
    cut = ""
    if not asked.items or at(answer, asked.more):
        cut = "The receiver's answer is another object, or a list that is cut."
    if asked.progress and len(exact) == 1:
        return of_command(
            contract,
            wire,
            asked.progress,
            exact[0],
            sent=sent,
            key=key,
            object_at=asked.object,
            named=asked.reference,
        )
    return _finding(contract, wire, sent, key, exact, cut=cut, named=asked.reference)


def _finding(
    contract: EffectContract,
    wire: HttpWire,
    sent: dict[str, Any],
    key: str,
    exact: list[dict[str, Any]],
    *,
    cut: str,
    named: str = "",
) -> Finding:
    if not exact and cut:
        return Finding("unclear", sentence=cut)
    if not exact:
        return Finding("absent", sentence="The receiver has no object with exactly this id.")
    if len(exact) > 1:
        references = [reference_of(wire, one, key, named) for one in exact]
        return Finding(
            "several",
            sentence=f"The receiver has {len(exact)} of them: {', '.join(references)}.",
            detail={"references": references},
        )
    return of_object(contract, wire, exact[0], sent=sent, key=key, named=named)


def list_since(
    contract: EffectContract,
    wire: HttpWire,
    listing: HttpListing,
    place: Place,
    *,
    since: datetime,
    pages: int,
    within: float | None = None,
) -> Listing:
    """Everything that the receiver says was made since *since*: at most *pages* pages, in at most *within* seconds.

    Never raises for what the network does: what could be read comes back, with the reason why it is cut.
    """
    found: list[Listed] = []
    try:
        for page in _pages(wire, listing, place, since, pages, Deadline(within or contract.deadline)):
            found += [_listed(wire, listing, one) for one in page]
    except _Unread as unread:
        return Listing(tuple(found), str(unread), unread.retry_after)
    return Listing(tuple(found))


def _listed(wire: HttpWire, listing: HttpListing, one: dict[str, Any]) -> Listed:
    keys = keys_of(wire, listing.matches, one)
    return Listed(tuple(keys), reference_of(wire, one, keys[0] if len(keys) == 1 else ""), one)


def _pages(
    wire: HttpWire, listing: HttpListing, place: Place, since: datetime, most: int, deadline: Deadline
) -> Iterator[list[dict[str, Any]]]:
    first = url = place.base_url.rstrip("/") + listing.address(since)
    seen = {url}
    for _ in range(most):
        page, go_on = _read_page(wire, listing, place, first, url, deadline)
        yield page
        following = go_on()
        if not following:
            return
        if following in seen:
            raise _Unread("The list goes on at a page that was read already.")
        seen.add(following)
        url = following
    raise _Unread(f"The list goes on after {most} page{'s' if most > 1 else ''}, and was not read further.")


def _read_page(
    wire: HttpWire, listing: HttpListing, place: Place, first: str, url: str, deadline: Deadline
) -> tuple[list[dict[str, Any]], Callable[[], str]]:
    """A page's objects, and what tells where the next page is: that may fail where the objects could be read."""
    answer, headers = _page(wire, place, url, deadline)
    page = at(answer, listing.items) if listing.items else answer
    if not isinstance(page, list) or not all(isinstance(one, dict) for one in page):
        raise _Unread("The receiver's answer holds no list of objects.")

    def go_on() -> str:
        following = _following(wire, listing, first, url, answer, headers, page)
        if following and urlsplit(following)[:2] != urlsplit(first)[:2]:
            # The secret goes with the request: it is not carried to wherever an answer points.
            raise _Unread("The list goes on at another address, which is not asked.")
        return following

    return page, go_on


def read_page(
    contract: EffectContract,
    wire: HttpWire,
    listing: HttpListing,
    place: Place,
    *,
    since: datetime,
    address: str = "",
) -> Page:
    """One page of what was made since *since*: the first, or the one at *address*, which the page before it named.

    Never raises for what the network does.
    """
    first = place.base_url.rstrip("/") + listing.address(since)
    objects: tuple[Listed, ...] = ()
    try:
        page, go_on = _read_page(wire, listing, place, first, address or first, Deadline(contract.deadline))
        objects = tuple(_listed(wire, listing, one) for one in page)
        return Page(objects, go_on())
    except _Unread as unread:
        return Page(objects, cut=str(unread))


def judge(
    contract: EffectContract, wire: HttpWire, *, request: bytes, key: str, found: dict[str, Any]
) -> Finding:
    """What the object *found*, which bears exactly *key*, says about the effect that *request* was stored for."""
    return _finding(contract, wire, json.loads(request)["echoes"], key, [found], cut="")


def _page(wire: HttpWire, place: Place, url: str, deadline: Deadline) -> tuple[Any, dict[str, str]]:
    if deadline.passed:
        raise _Unread("The list could not be read to its end in time.")
    try:
        status, headers, body = _get(wire, place, url, deadline)
    except Refused as refused:
        raise _Unread(f"{refused}.") from refused
    except Exception as error:
        raise _Unread(f"The receiver did not answer: {type(error).__name__}") from error
    answer = parsed(body)
    if not 200 <= status < 300 or answer is None:
        raise _Unread(f"The receiver answered {status}: {excerpt(body)}", retry_after(headers))
    return answer, headers


def _following(
    wire: HttpWire,
    listing: HttpListing,
    first: str,
    url: str,
    answer: Any,
    headers: dict[str, str],
    page: list[dict[str, Any]],
) -> str:
    """The next page's address; empty when this was the last one. Raises _Unread where there is one and it can't be told."""
    if listing.after:
        if not at(answer, listing.more):
            return ""
        last = reference_of(wire, page[-1], "") if page else ""
        if not last:
            raise _Unread("The list goes on, but its last object has no id to go on from.")
        return f"{first}{'&' if '?' in first else '?'}{listing.after}={quote(last, safe='')}"
    if listing.following:
        if listing.end and at(answer, listing.end):
            return ""
        address = at(answer, listing.following)
        return urljoin(url, address) if isinstance(address, str) else ""
    link = _NEXT.search(headers.get("link", ""))
    return urljoin(url, link[1]) if link else ""


def _get(wire: HttpWire, place: Place, url: str, deadline: Deadline) -> tuple[int, dict[str, str], bytes]:
    check_scheme(place.base_url)
    headers = {"Accept": "application/json", "User-Agent": "signalbox", **wire.headers}
    if wire.auth != "webhook":
        headers |= credentials(wire, place.secret, key="", content=b"")
    return exchange("GET", url, headers=headers, content=b"", hosts=place.hosts, deadline=deadline)
