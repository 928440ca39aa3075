"""The scripted model endpoint, asked through langchain-openai as the sample workflows ask it."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any, Literal

import httpx
import openai
import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from tests.demo.conftest import Process


class Intent(BaseModel):
    """What a message is about."""

    intent: Literal["offer_request", "support", "complaint", "other"]
    language: str
    confidence: float


class OfferLine(BaseModel):
    sku: str
    description: str
    quantity: int
    unit_minor: int


class Offer(BaseModel):
    """A drafted offer."""

    subject: str
    body: str
    lines: list[OfferLine]
    amount_minor: int
    currency: str


def model(process: Process, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=f"{process.url}/v1", api_key=SecretStr("none"), model="any-model", max_retries=0, **more
    )


def classify(text: str) -> list[SystemMessage | HumanMessage]:
    return [SystemMessage("You sort messages. [classify]"), HumanMessage(text)]


CATALOGUE = [
    {"sku": "SB-TEAM", "description": "Team plan, per seat and year", "unit": "seat", "unit_minor": 4900, "currency": "EUR"},
    {"sku": "SB-ENT", "description": "Enterprise plan, per seat and year", "unit": "seat", "unit_minor": 9900, "currency": "EUR"},
    {"sku": "SB-ONB", "description": "Onboarding day", "unit": "day", "unit_minor": 120000, "currency": "EUR"},
    {"sku": "SB-SUP", "description": "Priority support, per year", "unit": "year", "unit_minor": 240000, "currency": "EUR"},
]  # fmt: skip


def draft(request: str, **customer: str) -> list[SystemMessage | HumanMessage]:
    task = json.dumps({"customer": customer, "catalogue": CATALOGUE}, ensure_ascii=False)
    return [
        SystemMessage("[draft_offer] Draft an offer."),
        HumanMessage(f"{request}\n\n```json\n{task}\n```"),
    ]


@pytest.mark.parametrize(
    ("text", "intent", "language"),
    [
        ("Hello, could you send us a quote for 40 seats?", "offer_request", "en"),
        ("Guten Tag, bitte senden Sie uns ein Angebot für 25 Lizenzen.", "offer_request", "de"),
        ("Bonjour, merci de nous envoyer un devis pour 15 licences.", "offer_request", "fr"),
        ("Hola, necesitamos presupuesto para 12 licencias.", "offer_request", "es"),
        ("Goedemiddag, graag een offerte voor 60 licenties.", "offer_request", "nl"),
        ("Buongiorno, vorremmo un preventivo per 8 postazioni.", "offer_request", "it"),
        ("40名分のライセンスのお見積りをお願いします。", "offer_request", "ja"),
        ("Since this morning the export is broken: error 500.", "support", "en"),
        ("Der Scanner funktioniert nicht mehr seit gestern.", "support", "de"),
        ("How do I set up single sign-on?", "support", "en"),
        ("We are very disappointed and want a refund.", "complaint", "en"),
        ("Je suis déçue, c'est inacceptable : remboursement !", "complaint", "fr"),
        ("See you at the fair next week, best regards", "other", "en"),
    ],
)
def test_classify(model_process: Process, text: str, intent: str, language: str) -> None:
    found = json.loads(str(model(model_process).invoke(classify(text)).content))
    assert (found["intent"], found["language"]) == (intent, language)
    assert 0.5 < found["confidence"] < 1


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_structured_output_of_every_method(
    model_process: Process, method: Literal["json_schema", "function_calling", "json_mode"]
) -> None:
    structured = model(model_process).with_structured_output(Intent, method=method)
    found = structured.invoke(classify("Please quote 40 seats in JSON."))
    assert isinstance(found, Intent)
    assert (found.intent, found.language) == ("offer_request", "en")


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_a_drafted_offer_is_computed_from_request_and_catalogue(
    model_process: Process, method: Literal["json_schema", "function_calling"]
) -> None:
    structured = model(model_process).with_structured_output(Offer, method=method)
    offer = structured.invoke(
        draft(
            "Bitte ein Angebot für 40 Plätze und 2 Tage Schulung, mit Wartung.",
            name="Jana Brückner",
            company="Brückner Maschinenbau GmbH",
            language="de",
            currency="EUR",
        )
    )
    assert isinstance(offer, Offer)
    assert [(line.sku, line.quantity) for line in offer.lines] == [
        ("SB-TEAM", 40),
        ("SB-ONB", 2),
        ("SB-SUP", 1),
    ]
    assert offer.amount_minor == 40 * 4900 + 2 * 120000 + 240000
    assert offer.amount_minor == sum(line.quantity * line.unit_minor for line in offer.lines)
    assert offer.currency == "EUR"
    assert "Brückner Maschinenbau GmbH" in offer.subject
    assert offer.body.startswith("Guten Tag Jana Brückner,")
    assert "6.760,00 EUR" in offer.body


@pytest.mark.parametrize(
    ("request_text", "lines"),
    [
        ("Could you offer 1,200 seats of the Enterprise plan? We start on 12.01.2027.", [("SB-ENT", 1200)]),
        ("We need licences for our office, please: 15", [("SB-TEAM", 15)]),
        ("40名分のライセンスと2日間の研修のお見積りをお願いします。", [("SB-TEAM", 40), ("SB-ONB", 2)]),
        ("A quote for SB-SUP please", [("SB-SUP", 1)]),
        ("Presupuesto para 25 licencias", [("SB-TEAM", 25)]),
        ("What would it cost?", [("SB-TEAM", 1)]),
    ],
)
def test_quantities_are_read_from_the_request(
    model_process: Process, request_text: str, lines: list[tuple[str, int]]
) -> None:
    offer = json.loads(str(model(model_process).invoke(draft(request_text, name="A")).content))
    assert [(line["sku"], line["quantity"]) for line in offer["lines"]] == lines


def test_prices_are_those_of_the_customer_s_currency(model_process: Process) -> None:
    catalogue = [{**CATALOGUE[0], "currency": "JPY", "unit_minor": 7800}, CATALOGUE[0]]
    task = {
        "customer": {"name": "佐藤 美咲", "language": "ja", "currency": "JPY"},
        "catalogue": catalogue,
        "request": "40席",
    }
    messages = [SystemMessage("[draft_offer]"), HumanMessage(json.dumps(task))]
    offer = json.loads(str(model(model_process).invoke(messages).content))
    assert (offer["amount_minor"], offer["currency"]) == (312000, "JPY")
    assert "312,000 JPY" in offer["body"]
    assert offer["body"].startswith("佐藤 美咲 様")


def test_the_same_request_gets_the_same_words(model_process: Process) -> None:
    asked = draft("40 seats", name="Hannah Whitlock", language="en")
    assert (
        model(model_process).invoke(asked).content
        == model(model_process, temperature=1, seed=7).invoke(asked).content
    )


def test_a_stream_brings_the_same_words_in_pieces_with_usage(model_process: Process) -> None:
    asked = draft("40 seats", name="Hannah Whitlock", language="en")
    chunks = list(model(model_process, stream_usage=True).stream(asked))
    whole = model(model_process).invoke(asked)
    assert len([chunk for chunk in chunks if chunk.content]) > 3
    assert "".join(str(chunk.content) for chunk in chunks) == whole.content
    streamed = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert streamed == [whole.usage_metadata]
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["total_tokens"] > whole.usage_metadata["output_tokens"] > 0


def test_an_answer_keeps_to_a_schema_it_has_never_seen(model_process: Process) -> None:
    schema = {
        "title": "Triage",
        "description": "d",
        "type": "object",
        "additionalProperties": False,
        "required": ["category", "language", "urgent", "tags", "note", "contact"],
        "properties": {
            "category": {"enum": ["billing", "support", "other"]},
            "language": {"$ref": "#/$defs/code"},
            "urgent": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "contact": {"type": "object", "properties": {"phone": {"type": "string"}}, "required": ["phone"]},
        },
        "$defs": {"code": {"type": "string"}},
    }
    structured = model(model_process).with_structured_output(schema, method="json_schema")
    found = structured.invoke([HumanMessage("Die Anmeldung geht nicht, Fehler 401.")])
    assert found == {
        "category": "support",
        "language": "de",
        "urgent": False,
        "tags": [""],
        "note": None,
        "contact": {"phone": ""},
    }


def test_a_plain_chat_is_answered_in_its_language(model_process: Process) -> None:
    said = str(model(model_process).invoke([HumanMessage("Guten Tag, ich habe eine Frage.")]).content)
    assert said.startswith("Guten Tag,")


def test_models_are_listed_and_plainly_named(model_process: Process) -> None:
    [listed] = openai.OpenAI(base_url=f"{model_process.url}/v1", api_key="none").models.list().data
    assert listed.id == "scripted-1"
    assert "There is no model here" in httpx.get(model_process.url).text


def calls(process: Process) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{process.url}/_records/calls").json()["calls"]
    return found


def test_calls_are_recorded_with_the_hash_of_the_request(model_process: Process) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "system", "content": "[classify]"}]}).encode()
    assert httpx.post(f"{model_process.url}/v1/chat/completions", content=body).status_code == 200
    last = calls(model_process)[-1]
    assert last["kind"] == "classify"
    assert last["request_sha256"] == hashlib.sha256(body).hexdigest()
    assert (last["status"], last["fault"], last["model"]) == (200, None, "m")


def order(process: Process, **fault: Any) -> None:
    assert httpx.post(f"{process.url}/_faults", json=fault).status_code == 201


def test_fault_500_as_often_as_ordered(model_process: Process) -> None:
    order(model_process, kind="500", times=2, match={"contains": "for-500"})
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            model(model_process).invoke(classify("for-500"))
    assert model(model_process).invoke(classify("for-500")).content
    assert [call["status"] for call in calls(model_process)[-3:]] == [500, 500, 200]


def test_fault_429_says_when_to_come_back(model_process: Process) -> None:
    order(model_process, kind=429, retry_after=3, match={"contains": "for-429"})
    assert model(model_process).invoke(classify("another")).content
    with pytest.raises(openai.RateLimitError) as refused:
        model(model_process).invoke(classify("for-429"))
    assert refused.value.response.headers["retry-after"] == "3"


def test_fault_slow_answers_late(model_process: Process) -> None:
    order(model_process, kind="slow", seconds=0.3)
    started = time.monotonic()
    assert model(model_process).invoke(classify("slow")).content
    assert time.monotonic() - started >= 0.3


def test_fault_hang_never_answers(model_process: Process) -> None:
    order(model_process, kind="hang", seconds=0.3)
    with pytest.raises(openai.APIConnectionError):
        model(model_process).invoke(classify("hang"))
    assert calls(model_process)[-1]["status"] == "dropped"


def test_orders_are_listed_cleared_and_refused(model_process: Process) -> None:
    order(model_process, kind="slow", match={"contains": "never said"})
    assert [fault["kind"] for fault in httpx.get(f"{model_process.url}/_faults").json()["faults"]] == ["slow"]
    assert httpx.delete(f"{model_process.url}/_faults").json() == {"cleared": 1}
    bad_orders: list[object] = [
        {"kind": "explode"},
        {"kind": "slow", "times": 0},
        {"kind": "slow", "second": 1},
        [],
    ]
    for bad in bad_orders:
        assert httpx.post(f"{model_process.url}/_faults", json=bad).status_code == 422


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"messages": []}', b'{"messages": ["hi"]}'])
def test_a_bad_request_is_an_error_of_the_wire_format(model_process: Process, body: bytes) -> None:
    answer = httpx.post(f"{model_process.url}/v1/chat/completions", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert httpx.get(f"{model_process.url}/v1/embeddings").status_code == 404
