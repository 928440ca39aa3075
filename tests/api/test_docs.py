"""The API's description, and the page that explains it."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db


def test_the_description_names_what_is_required(client: Client) -> None:
    described = client.get("/api/v1/openapi.json").json()
    post = described["paths"]["/api/v1/runs"]["post"]
    assert set(post["responses"]) >= {"200", "201", "400", "401", "403", "413", "415", "422"}
    assert [one["name"] for one in post["parameters"] if one["required"]] == ["Idempotency-Key"]
    assert post["requestBody"]["content"]["application/json"]["schema"]["required"] == ["workflow", "input"]
    assert set(described["paths"]) == {
        "/api/v1/runs",
        "/api/v1/runs/{run_id}",
        *(f"/api/v1/runs/{{run_id}}/{one}" for one in ("continue", "ask-again", "pause", "cancel")),
        "/api/v1/runs/{run_id}/branches",
        "/api/v1/runs/{run_id}/replays",
    }


def test_the_page_says_every_operation_without_a_script_of_its_own(client: Client) -> None:
    page: Any = client.get("/api/v1/docs")
    text = html.unescape(page.content.decode())
    assert page.status_code == 200
    for words in (
        "/api/v1/runs/{run_id}",
        "Idempotency-Key",
        "Authorization: Bearer sbx_…",
        "415",
        "waiting_approval",
    ):
        assert words in text
    assert re.findall(r"<script(?![^>]*src=)", text) == []
    assert re.findall(r'(?:src|href)="https?://', text) == []
    assert "unsafe" not in page["Content-Security-Policy"]


@pytest.mark.parametrize("method", ["get", "post", "delete"])
def test_an_address_that_there_is_not_is_refused_in_the_same_shape(client: Client, method: str) -> None:
    answer: Any = getattr(client, method)("/api/v1/nothing/here")
    assert answer.status_code == 401
    assert answer.json()["code"] == "unauthenticated"
