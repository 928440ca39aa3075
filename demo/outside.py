"""What the demo's workflows read from outside: the model gateway, the CRM, the help articles."""

from __future__ import annotations

import os
from typing import Any

import httpx
from langchain_openai import ChatOpenAI
from pydantic import SecretStr


def model() -> ChatOpenAI:
    """Any OpenAI-compatible gateway. One layer of sending again is enough, and it is the run's: retries are off.

    So is following a redirect, which would send the request and its key once more, to somewhere else.
    """
    return ChatOpenAI(
        model=os.environ.get("DEMO_MODEL_NAME", "scripted-1"),
        base_url=os.environ["DEMO_MODEL_URL"].rstrip("/") + "/v1",
        api_key=SecretStr(os.environ.get("DEMO_MODEL_KEY", "none")),
        max_retries=0,
        http_client=httpx.Client(follow_redirects=False),
        http_async_client=httpx.AsyncClient(follow_redirects=False),
        timeout=60,
        temperature=0,
    )


def _crm() -> httpx.Client:
    # Reads go by an account of their own: what may write is the ledger's to use.
    return httpx.Client(
        base_url=os.environ["DEMO_RECEIVER_URL"], headers={"Authorization": "Bearer reader:demo"}, timeout=10
    )


def find_customer(email: str) -> dict[str, Any] | None:
    """The CRM's customer with exactly this address; a read, so it may be repeated."""
    with _crm() as crm:
        found = crm.get("/v1/customers", params={"email": email}).raise_for_status().json()["data"]
    return found[0] if found else None


CATALOGUE: list[dict[str, Any]] = [
    {"sku": "SEAT-TEAM", "description": "Team seat, one year", "unit_minor": 14_400, "currency": "EUR"},
    {"sku": "SEAT-TEAM", "description": "Team seat, one year", "unit_minor": 15_600, "currency": "USD"},
    {"sku": "SEAT-TEAM", "description": "Team seat, one year", "unit_minor": 12_600, "currency": "GBP"},
    {"sku": "SEAT-TEAM", "description": "Team seat, one year", "unit_minor": 13_900, "currency": "CHF"},
    {"sku": "SEAT-TEAM", "description": "Team seat, one year", "unit_minor": 23_000, "currency": "JPY"},
    {
        "sku": "ONBOARD-DAY",
        "description": "Onboarding workshop, per day",
        "unit_minor": 95_000,
        "currency": "EUR",
    },
    {
        "sku": "ONBOARD-DAY",
        "description": "Onboarding workshop, per day",
        "unit_minor": 99_000,
        "currency": "USD",
    },
    {
        "sku": "ONBOARD-DAY",
        "description": "Onboarding workshop, per day",
        "unit_minor": 84_000,
        "currency": "GBP",
    },
    {
        "sku": "ONBOARD-DAY",
        "description": "Onboarding workshop, per day",
        "unit_minor": 92_000,
        "currency": "CHF",
    },
    {
        "sku": "ONBOARD-DAY",
        "description": "Onboarding workshop, per day",
        "unit_minor": 150_000,
        "currency": "JPY",
    },
    {
        "sku": "SUPPORT-PRIO",
        "description": "Priority support, one year",
        "unit_minor": 240_000,
        "currency": "EUR",
    },
    {
        "sku": "SUPPORT-PRIO",
        "description": "Priority support, one year",
        "unit_minor": 260_000,
        "currency": "USD",
    },
    {
        "sku": "SUPPORT-PRIO",
        "description": "Priority support, one year",
        "unit_minor": 210_000,
        "currency": "GBP",
    },
]

ARTICLES: list[dict[str, str]] = [
    {"id": "KB-101", "title": "Invite colleagues and assign seats", "text": "Open Settings › People, choose Invite, and pick a role. Seats are charged from the day they are used."},
    {"id": "KB-114", "title": "Export reports as CSV or PDF", "text": "Open the report, choose Export, and pick a format. Exports of more than 50,000 rows arrive by mail."},
    {"id": "KB-127", "title": "Set up single sign-on", "text": "Enter your identity provider's issuer and client id under Settings › Security, then test with one account."},
    {"id": "KB-133", "title": "Change the billing address", "text": "Administrators change it under Billing › Details. Invoices that are already issued stay as they are."},
    {"id": "KB-140", "title": "The mobile app does not sync", "text": "Sign out and in again. If the last sync is older than a day, remove the device under Settings › Devices."},
]  # fmt: skip


def search_articles(query: str) -> list[dict[str, str]]:
    """The articles that share a word with the query, best first."""
    words = {word for word in query.lower().split() if len(word) > 3}
    scored = [
        (sum(word in f"{article['title']} {article['text']}".lower() for word in words), article)
        for article in ARTICLES
    ]
    return [article for score, article in sorted(scored, key=lambda one: -one[0]) if score][:2]
