"""Drafting an offer: quantities are read out of the request, prices out of the catalogue it came with."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any, Final

from demo.model_endpoint.language import detect, occurs, terms, words_of
from demo.model_endpoint.phrases import money, phrase

#: What is sold, in the words of several languages. A number next to such a word is that line's quantity.
CONCEPTS: Final = {
    "seat": terms("""
        seat*; people; colleague*; employee*; personen; mitarbeiter*; personnes; personas; medewerker*; persone; license*
        licence*; user*; platz; plätze*; lizenz*; nutzer*; benutzer*; arbeitsplätze*; arbeitsplatz; poste*; utilisateur*
        plaza*; licencia*; usuario*; licentie*; gebruiker*; plaatsen; licenz*; postazion*; utent*
        ライセンス; 席; 名; ユーザー
    """),
    "day": terms("""
        day; days; workshop*; training*; onboarding; tag; tage; tagen; schulung*; einführung*; jour; jours; journée*
        formation*; día; días; jornada*; formación; dag; dagen; opleiding*; giorno; giorni; formazione; 日間; 研修
    """),
    "hour": terms("hour*; stunde*; heure*; hora; horas; uur; uren; ora; ore; 時間"),
    "site": terms(
        "site*; location*; standort*; filiale*; agence*; sede; sedes; sedi; vestiging*; locatie*; 拠点"
    ),
    "device": terms(
        "device*; terminal*; scanner*; gerät*; appareil*; dispositiv*; apparaat; apparaten; 端末; 台"
    ),
    "support": terms("""
        support; priority; wartung; assistance; maintenance; soporte; mantenimiento; ondersteuning; assistenza
        manutenzione; サポート
    """),
    "integration": terms("""
        api; integration*; connector*; schnittstelle*; anbindung*; connecteur*; intégration*; integración; conector*
        koppeling*; integratie*; integrazion*; 連携
    """),
    "storage": terms(
        "storage; terabyte*; tb; gb; speicher*; stockage; almacenamiento; opslag; archivio; 容量"
    ),
}
#: Terms that order one of a thing without saying a number ("and onboarding, please").
ONE_OF: Final = frozenset(
    terms(
        "onboarding; training*; workshop*; schulung*; einführung*; formation*; formación; opleiding*; formazione; 研修"
    )
    + CONCEPTS["support"]
    + CONCEPTS["integration"]
)
#: A whole number, grouped or not; not a part of a decimal, a date, a percentage or a price.
QUANTITY: Final = re.compile(
    r"(?<![A-Za-z0-9_.,:/€$£¥+-])(\d{1,3}(?:[.,'’\u202f]\d{3})+|\d{1,6})(?![\d.,:/-]*\d|\s*%|\s*[€$£¥])"
)
REACH: Final = 40  # characters on either side in which a number finds its word


@dataclass
class CatalogueLine:
    sku: str
    description: str
    unit_minor: int
    currency: str
    concepts: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Task:
    """What an offer is drafted from."""

    customer: dict[str, Any]
    catalogue: list[CatalogueLine]
    request: str
    language: str
    currency: str


def draft(text: str, digest: bytes) -> dict[str, Any]:
    """Subject, body, lines and amount for the request, customer and catalogue in *text*.

    *digest* picks between equally good wordings. Without a catalogue there is nothing to offer: no lines, amount 0.
    """
    task = read_task(text)
    quantities = quantities_in(task.request, task.catalogue)
    lines: list[dict[str, Any]] = [
        {
            "sku": line.sku,
            "description": line.description,
            "quantity": quantity,
            "unit_minor": line.unit_minor,
        }
        for line, quantity in zip(task.catalogue, quantities, strict=True)
        if quantity
    ]
    amount = sum(line["quantity"] * line["unit_minor"] for line in lines)
    return {
        "subject": subject_of(task, lines),
        "body": body_of(task, lines, amount, digest),
        "lines": lines,
        "amount_minor": amount,
        "currency": task.currency,
    }


def read_task(text: str) -> Task:
    """Find the JSON in the message; what is not JSON is the request, unless the JSON holds it."""
    found, rest = split_json(text)
    merged: dict[str, Any] = {}
    for value in found:
        merged |= value if isinstance(value, dict) else {"catalogue": value}
    customer = merged.get("customer", merged)
    customer = customer if isinstance(customer, dict) else {}
    raw: list[Any] = next(
        (merged[name] for name in ("catalogue", "catalog", "price_list", "lines") if merged.get(name)), []
    )
    request = next((str(merged[name]) for name in ("request", "message", "text") if merged.get(name)), rest)
    currency = currency_of(customer, raw, merged)
    language = str(customer.get("language") or merged.get("language") or detect(request))[:2].lower()
    lines = [catalogue_line(entry, currency) for entry in raw if isinstance(entry, dict)]
    return Task(customer, [line for line in lines if line.currency == currency], request, language, currency)


def split_json(text: str) -> tuple[list[Any], str]:
    """The JSON objects and lists of objects in *text*, and the text around them."""
    decoder = json.JSONDecoder()
    found: list[Any] = []
    rest, position = "", 0
    for start in (match.start() for match in re.finditer(r"[{\[]", text)):
        if start < position:
            continue
        try:
            value, end = decoder.raw_decode(text, start)
        except ValueError:
            continue
        if isinstance(value, dict) or (value and isinstance(value, list) and isinstance(value[0], dict)):
            found.append(value)
            rest += text[position:start]
            position = end
    return found, (rest + text[position:]).replace("```json", "").replace("```", "").strip()


def currency_of(customer: dict[str, Any], raw: list[Any], merged: dict[str, Any]) -> str:
    """The customer's currency if the catalogue has it, else the catalogue's own."""
    offered = [str(entry["currency"]) for entry in raw if isinstance(entry, dict) and entry.get("currency")]
    wanted = customer.get("currency") or merged.get("currency")
    if wanted and (wanted in offered or not offered):
        return str(wanted)
    return offered[0] if offered else "EUR"


def catalogue_line(entry: dict[str, Any], currency: str) -> CatalogueLine:
    description = str(
        entry.get("description") or entry.get("name") or entry.get("title") or entry.get("sku", "")
    )
    words = f"{entry.get('unit', '')} {description} {entry.get('sku', '')}".replace("-", " ").replace(
        "_", " "
    )
    return CatalogueLine(
        sku=str(entry.get("sku", "")),
        description=description,
        unit_minor=next(
            (int(entry[name]) for name in ("unit_minor", "price_minor", "amount_minor") if name in entry), 0
        ),
        currency=str(entry.get("currency") or currency),
        concepts=frozenset(concepts_in(words)),
    )


def concepts_in(text: str) -> list[str]:
    whole, words = text.lower(), words_of(text)
    return [name for name, known in CONCEPTS.items() if any(occurs(term, words, whole) for term in known)]


def quantities_in(request: str, catalogue: list[CatalogueLine]) -> list[int]:
    """A quantity for each catalogue line; 0 for what was not asked for."""
    text = unicodedata.normalize("NFKC", request)
    quantities = [0] * len(catalogue)
    for number, near in numbers_in(text):
        for index in lines_for(near, text, catalogue):
            quantities[index] = quantities[index] or number
            break
    lower, words = text.lower(), words_of(text)
    for index, line in enumerate(catalogue):
        named = has_sku(line, text) or line.description.lower() in lower
        if not quantities[index] and (named or asked_for_one(line, words, lower, catalogue, quantities)):
            quantities[index] = 1
    if catalogue and not any(quantities):
        quantities[0] = next((number for number, _ in numbers_in(text)), 1)
    return quantities


def numbers_in(text: str) -> list[tuple[int, tuple[str, str]]]:
    """Each number with the text after it and before it, up to the next number, the sentence's end, or REACH."""
    matches = list(QUANTITY.finditer(text))
    found = []
    for place, match in enumerate(matches):
        end = matches[place + 1].start() if place + 1 < len(matches) else len(text)
        start = matches[place - 1].end() if place else 0
        after = re.split(r"[.;!?\n。]", text[match.end() : min(end, match.end() + REACH)])[0]
        before = re.split(r"[.;!?\n。]", text[max(start, match.start() - REACH) : match.start()])[-1]
        number = int(re.sub(r"\D", "", match.group(1)))
        if number:
            found.append((number, (after, before)))
    return found


def lines_for(near: tuple[str, str], text: str, catalogue: list[CatalogueLine]) -> list[int]:
    """The lines that a number may mean: by the first word after it that says what is sold, else by one before it."""
    for side, reversed_order in ((near[0], False), (near[1], True)):
        words = words_of(side)
        for word in reversed(words) if reversed_order else words:
            concepts = set(concepts_in(word))
            fitting = [index for index, line in enumerate(catalogue) if concepts & line.concepts]
            if fitting:
                return sorted(fitting, key=lambda index: -named_words(catalogue[index], text))
    return []


def named_words(line: CatalogueLine, text: str) -> int:
    """How many words of the line's name the text uses: "Enterprise" picks its plan among those sold by the seat."""
    said = set(words_of(text))
    return sum(word in said for word in set(words_of(line.description)) if len(word) > 3) + 10 * has_sku(
        line, text
    )


def has_sku(line: CatalogueLine, text: str) -> bool:
    return (
        bool(line.sku) and re.search(rf"(?<!\w){re.escape(line.sku)}(?!\w)", text, re.IGNORECASE) is not None
    )


def asked_for_one(
    line: CatalogueLine, words: list[str], lower: str, catalogue: list[CatalogueLine], quantities: list[int]
) -> bool:
    """Whether a word orders the line without a number, and no other line of its kind has been taken for it."""
    single = [term for concept in line.concepts - {"seat"} for term in CONCEPTS[concept] if term in ONE_OF]
    taken = any(
        quantity and other.concepts & line.concepts - {"seat"}
        for other, quantity in zip(catalogue, quantities, strict=True)
    )
    return not taken and any(occurs(term, words, lower) for term in single)


def subject_of(task: Task, lines: list[dict[str, Any]]) -> str:
    what = ", ".join(f"{line['quantity']} × {line['description']}" for line in lines[:2])
    company = task.customer.get("company") or task.customer.get("name")
    if company:
        return phrase(task.language, "subject_for", company=company, what=what)
    return phrase(task.language, "subject", what=what)


def body_of(task: Task, lines: list[dict[str, Any]], amount: int, digest: bytes) -> str:
    def price(minor: int) -> str:
        return money(minor, task.currency, task.language)

    listed = [
        phrase(
            task.language,
            "line",
            quantity=line["quantity"],
            description=line["description"],
            unit=price(line["unit_minor"]),
            total=price(line["quantity"] * line["unit_minor"]),
        )
        for line in lines
    ]
    name = task.customer.get("name")
    greeting = (
        phrase(task.language, "greeting", name=name) if name else phrase(task.language, "greeting_nobody")
    )
    return "\n\n".join(
        (
            greeting,
            phrase(task.language, "thanks_a" if digest[0] % 2 else "thanks_b"),
            "\n".join(listed),
            phrase(task.language, "total", total=price(amount)),
            phrase(task.language, "offer_close"),
        )
    )
