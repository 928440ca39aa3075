"""Whatever is sent, the API answers as it describes itself, and never with a 500."""

from __future__ import annotations

import json
import string
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schemathesis import Case
from schemathesis.config import SchemathesisConfig
from schemathesis.core import NotSet

from console.api import api
from runs.models import Run
from tests.api.conftest import OFFER, Call, start_of
from tests.people import World

pytestmark = pytest.mark.django_db
BOUNDED = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
    ],
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
DESCRIBED = api.get_openapi_schema()
schema = schemathesis.openapi.from_dict(DESCRIBED, config=SchemathesisConfig())


@schema.parametrize()
@BOUNDED
def test_what_the_description_allows_is_answered_as_it_says(case: Case[Any], acme: World, token: str) -> None:
    answer = sent(case, token)
    operation = DESCRIBED["paths"][case.operation.path].get(case.method.lower())
    if operation is None:
        assert answer.status_code == 405
        return
    said = {str(status): one for status, one in operation["responses"].items()}[str(answer.status_code)]
    shape = said["content"]["application/json"]["schema"]
    Draft202012Validator({**shape, "components": DESCRIBED["components"]}).validate(answer.json())


def sent(case: Case[Any], token: str) -> Any:
    """Schemathesis's case through Django's own client, which stays in the test's transaction."""
    body = b"" if isinstance(case.body, NotSet) else case.body
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {name: str(value) for name, value in (case.headers or {}).items()}
    headers["Authorization"] = f"Bearer {token}"
    return Client().generic(
        case.method, case.formatted_path, data=body, content_type="application/json", headers=headers
    )


@BOUNDED
@given(raw=st.binary(max_size=400) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_refused_in_words(call: Call, token: str, raw: bytes) -> None:
    answer = call("post", "runs", token=token, raw=raw)
    assert answer.status_code in {400, 422}
    assert set(answer.json()) >= {"code", "message"}


@BOUNDED
@given(
    changes=st.dictionaries(
        st.sampled_from(["workflow", "conversation", "input", "x"]), json_values, min_size=1
    )
)
def test_any_values_in_a_body_are_answered(
    acme: World, call: Call, token: str, changes: dict[str, Any]
) -> None:
    before = Run.objects.count()
    answer = call("post", "runs", token=token, body=start_of(acme, **changes))
    assert answer.status_code in {201, 400, 422}
    assert Run.objects.count() == before + (answer.status_code == 201)


@BOUNDED
@given(value=json_values, name=st.sampled_from(sorted(OFFER)))
def test_any_value_in_an_input_is_answered(
    acme: World, call: Call, token: str, value: Any, name: str
) -> None:
    answer = call("post", "runs", token=token, body=start_of(acme, input={**OFFER, name: value}))
    assert answer.status_code in {201, 422}


@BOUNDED
@given(key=st.text(alphabet=string.printable, max_size=300), run_id=st.text(max_size=60))
def test_any_key_and_any_id_is_answered(acme: World, call: Call, token: str, key: str, run_id: str) -> None:
    assert call("get", f"runs/{quote(run_id, safe='')}", token=token).status_code in {400, 401, 404, 405}
    if "\n" not in key and "\r" not in key:
        assert call("post", "runs", token=token, key=key, body=start_of(acme)).status_code in {200, 201, 400}
