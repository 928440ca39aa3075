"""The API explained on one page of our own: made from the OpenAPI description, without a script, under the strict CSP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from console.api import api

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """One field of a body, an answer or the headers."""

    name: str
    type: str
    required: bool
    about: str


@dataclass(frozen=True)
class Answer:
    status: str
    about: str
    fields: list[Field]


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    summary: str
    about: str
    parameters: list[Field]
    body: list[Field]
    answers: list[Answer]
    anchor: str = ""
    example: str = field(default="")


#: What each status means everywhere in the API.
STATUSES = {
    "200": "Done before with the same key: the same run.",
    "201": "Made by this call.",
    "400": "The request can't be read.",
    "401": "No valid token.",
    "403": "The token may not do this.",
    "404": "Not there, or not yours to see.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "422": "Well-formed, but a value does not fit; the fields say which.",
}


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """Public: it describes the API and shows nothing of any workspace."""
    described = api.get_openapi_schema()
    context = {
        "info": described["info"],
        "operations": list(operations(described)),
        "openapi_url": reverse("api:openapi-json"),
        "base": request.build_absolute_uri(reverse("api:api-root")).rstrip("/"),
    }
    return render(request, "api/docs.html", context)


def operations(described: Schema) -> Iterator[Operation]:
    """Every operation of an OpenAPI description, in its order."""
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            yield Operation(
                method=method.upper(),
                path=path,
                summary=one.get("summary", ""),
                about=one.get("description", ""),
                parameters=[_parameter(parameter, described) for parameter in one.get("parameters", ())],
                body=_fields(body, described) if body else [],
                answers=[
                    _answer(method, status, answer, described) for status, answer in one["responses"].items()
                ],
                anchor=one["operationId"],
                example=_example(method, path, bool(body)),
            )


def _parameter(parameter: Schema, described: Schema) -> Field:
    schema = parameter.get("schema", {})
    return Field(
        parameter["name"],
        f"{_type(schema, described)}, in the {parameter['in']}",
        bool(parameter.get("required")),
        parameter.get("description", ""),
    )


def _answer(method: str, status: object, answer: Schema, described: Schema) -> Answer:
    schema = answer.get("content", {}).get("application/json", {}).get("schema")
    read = method == "get" and str(status) == "200"
    about = "As it stands now." if read else STATUSES.get(str(status)) or str(answer.get("description", ""))
    return Answer(str(status), about, _fields(schema, described) if schema and str(status) < "300" else [])


def _fields(schema: Schema, described: Schema) -> list[Field]:
    whole = _resolved(schema, described)
    required = set(whole.get("required", ()))
    return [
        Field(
            name, _type(rule, described), name in required, _resolved(rule, described).get("description", "")
        )
        for name, rule in whole.get("properties", {}).items()
    ]


def _resolved(schema: Schema, described: Schema) -> Schema:
    reference = schema.get("$ref")
    if not reference:
        return schema
    return {**described["components"]["schemas"][reference.rpartition("/")[2]], **schema}


def _type(schema: Schema, described: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one, described) for one in schema["anyOf"]))
    whole = _resolved(schema, described)
    if "enum" in whole:
        return ", ".join(map(str, whole["enum"]))
    kind = str(whole.get("type", "any"))
    if kind == "array":
        return f"list of {_type(whole.get('items', {}), described)}"
    return {"date-time": "time, RFC 3339"}.get(str(whole.get("format")), kind)


def _example(method: str, path: str, has_body: bool) -> str:
    lines = [f"curl -X {method.upper()} $SIGNALBOX{path}", "-H 'Authorization: Bearer sbx_…'"]
    if has_body:
        body = {"workflow": "sales_offer_agent", "input": {"email": "…", "request": "…"}}
        lines += [
            "-H 'Idempotency-Key: order-4711'",
            "-H 'Content-Type: application/json'",
            f"-d '{json.dumps(body, ensure_ascii=False)}'",
        ]
    return " \\\n  ".join(lines)
