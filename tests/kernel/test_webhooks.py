"""Signed webhooks. The reference implementation of Standard Webhooks is the witness, both ways."""

from __future__ import annotations

import base64
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from console.kernel import webhooks
from console.kernel.webhooks import BadSignature, Proven, UnusableSecret, sign, signed_headers, verify

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"another secret, 24 bytes").decode()
BODY = b'{"type":"effect.completed","data":{"id":"eff_1"}}'


def headers_of(**changes: str) -> dict[str, str]:
    return {**signed_headers([SECRET], "msg_1", NOW, BODY), **changes}


def refused(headers: dict[str, str], body: bytes = BODY, *, secrets: tuple[str, ...] = (SECRET,)) -> str:
    with pytest.raises(BadSignature) as refusal:
        verify(secrets, headers, body, NOW)
    assert refusal.value.status == 401
    assert SECRET.removeprefix("whsec_") not in str(refusal.value)
    return refusal.value.reason


def test_the_published_vector() -> None:
    """The vector in the reference implementations' own tests (libraries/*/test…)."""
    at = datetime.fromtimestamp(1614265330, UTC)
    signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, b'{"test": 2432232314}') == signature


def test_the_reference_implementation_takes_what_we_sign() -> None:
    now = datetime.now(UTC)
    headers = signed_headers([OTHER, SECRET], "eff_1", now, BODY)
    for secret in (OTHER, SECRET):
        assert Webhook(secret).verify(BODY, headers)["type"] == "effect.completed"
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(BODY + b" ", headers)


@given(st.binary(min_size=24, max_size=64), st.text(max_size=200), st.booleans())
def test_and_we_take_what_it_signs(key: bytes, body: str, padded: bool) -> None:
    signature = Webhook(key).sign("msg_1", NOW, body)
    text = base64.b64encode(key).decode()
    secret = "whsec_" + (text if padded else text.rstrip("="))
    headers = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": f"{NOW.timestamp():.0f}",
        "Webhook-Signature": signature,
    }
    assert verify([secret], headers, body.encode(), NOW) == Proven("msg_1", NOW)


def test_any_of_several_secrets_and_of_several_signatures_will_do() -> None:
    mine = headers_of()[webhooks.SIGNATURE]
    theirs = sign(OTHER, "msg_1", NOW, BODY)
    asymmetric = (
        "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
    )
    for header in (
        f"{theirs} {mine}",
        f"{mine} {theirs}",
        f"{asymmetric} {mine}",
        f"v1,??? v1, junk {mine}",
    ):
        assert verify([SECRET], headers_of(**{webhooks.SIGNATURE: header}), BODY, NOW).message_id == "msg_1"
    assert verify([OTHER, SECRET], headers_of(), BODY, NOW).message_id == "msg_1"


@given(st.integers(0, len(BODY) * 8 - 1))
def test_every_changed_bit_of_the_body_is_noticed(bit: int) -> None:
    changed = bytearray(BODY)
    changed[bit // 8] ^= 1 << bit % 8
    assert refused(headers_of(), bytes(changed)) == "no_match"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({webhooks.ID: ""}, "header_missing"),
        ({webhooks.TIMESTAMP: ""}, "header_missing"),
        ({webhooks.SIGNATURE: ""}, "header_missing"),
        ({webhooks.ID: "msg.1"}, "id_unreadable"),
        ({webhooks.ID: "msg 1"}, "id_unreadable"),
        ({webhooks.ID: "msg_ü"}, "id_unreadable"),
        ({webhooks.ID: "m" * 201}, "id_unreadable"),
        ({webhooks.TIMESTAMP: "yesterday"}, "timestamp_unreadable"),
        ({webhooks.TIMESTAMP: "-5"}, "timestamp_unreadable"),
        ({webhooks.TIMESTAMP: "1e9"}, "timestamp_unreadable"),
        ({webhooks.TIMESTAMP: "١٢"}, "timestamp_unreadable"),
        ({webhooks.TIMESTAMP: "9" * 12}, "timestamp_unreadable"),
        ({webhooks.TIMESTAMP: "9" * 11}, "too_new"),
        ({webhooks.TIMESTAMP: "0"}, "too_old"),
        ({webhooks.ID: "msg_2"}, "no_match"),
        ({webhooks.TIMESTAMP: f"{NOW.timestamp() - 1:.0f}"}, "no_match"),
        ({webhooks.SIGNATURE: "v1a,abcd"}, "no_v1_signature"),
        ({webhooks.SIGNATURE: "v1,not-base64!"}, "no_v1_signature"),
        ({webhooks.SIGNATURE: "v1,"}, "no_v1_signature"),
        ({webhooks.SIGNATURE: sign(OTHER, "msg_1", NOW, BODY)}, "no_match"),
        ({webhooks.SIGNATURE: headers_of()[webhooks.SIGNATURE].replace("v1,", "v2,")}, "no_v1_signature"),
        ({webhooks.SIGNATURE: headers_of()[webhooks.SIGNATURE][:-8]}, "no_match"),
    ],
)
def test_what_proves_nothing_is_refused_with_its_reason(changes: dict[str, str], reason: str) -> None:
    assert refused(headers_of(**changes)) == reason


def test_a_header_that_is_not_there() -> None:
    for name in (webhooks.ID, webhooks.TIMESTAMP, webhooks.SIGNATURE):
        assert refused({k: v for k, v in headers_of().items() if k != name}) == "header_missing"


@pytest.mark.parametrize(("ago", "reason"), [(300, ""), (301, "too_old"), (-300, ""), (-301, "too_new")])
def test_the_edges_of_the_tolerance(ago: int, reason: str) -> None:
    headers = signed_headers([SECRET], "msg_1", NOW - timedelta(seconds=ago), BODY)
    if reason:
        assert refused(headers) == reason
    else:
        assert verify([SECRET], headers, BODY, NOW).sent_at == NOW - timedelta(seconds=ago)


def test_a_narrower_tolerance_counts() -> None:
    headers = signed_headers([SECRET], "msg_1", NOW - timedelta(seconds=11), BODY)
    with pytest.raises(BadSignature, match="sent 11 seconds ago, more than the 10 seconds that are allowed"):
        verify([SECRET], headers, BODY, NOW, timedelta(seconds=10))


def test_every_signature_is_compared_whichever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    honest = hmac.compare_digest

    def count(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return honest(one, other)

    monkeypatch.setattr(hmac, "compare_digest", count)
    header = " ".join([headers_of()[webhooks.SIGNATURE]] * 3)
    verify([SECRET, OTHER], headers_of(**{webhooks.SIGNATURE: header}), BODY, NOW)
    assert len(compared) == 6


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        ("", "begins with whsec_"),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "begins with whsec_"),
        ("whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "begins with whsec_"),
        ("whsec_", "0 bytes long"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa==", "22 bytes long"),
        ("whsec_" + base64.b64encode(b"x" * 65).decode(), "65 bytes long"),
        ("whsec_not base64!", "not base64"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSü", "not base64"),
    ],
)
def test_a_secret_that_is_none_is_no_silent_pass(secret: str, says: str) -> None:
    with pytest.raises(UnusableSecret, match=says) as refusal:
        verify([SECRET, secret], headers_of(), BODY, NOW)
    assert "MfKQ" not in str(refusal.value)
    with pytest.raises(UnusableSecret):
        sign(secret, "msg_1", NOW, BODY)


def test_without_a_secret_nothing_passes_and_nothing_is_signed() -> None:
    with pytest.raises(UnusableSecret):
        verify([], headers_of(), BODY, NOW)
    with pytest.raises(UnusableSecret):
        signed_headers([], "msg_1", NOW, BODY)


def test_what_can_not_be_signed() -> None:
    for message_id in ("", "a.b", "a b", "a\n", "ü", "m" * 201):
        with pytest.raises(ValueError, match="can't be a webhook's id"):
            sign(SECRET, message_id, NOW, BODY)
    with pytest.raises(ValueError, match="without a zone"):
        sign(SECRET, "msg_1", NOW.replace(tzinfo=None), BODY)


def test_a_setting_with_two_secrets() -> None:
    assert webhooks.secrets_in(f" {SECRET}\n{OTHER} ") == [SECRET, OTHER]
