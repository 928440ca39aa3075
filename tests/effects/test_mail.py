"""Mail: nobody can be asked and no key tells repeats apart, so one automatic attempt and then a person."""

from __future__ import annotations

import smtplib
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email import message_from_string
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from console.kernel.errors import Invalid
from effects import reconcile
from effects.ledger import Refused, Wait
from effects.models import EffectAttempt
from effects.origin import Result
from tests.effects.book import Book
from tests.effects.odd import OddMailServer
from tests.stack import free_port


def to(book: Book) -> str:
    return f"{book.world.workspace.id}@harborpine.example"


def test_a_mail_is_handed_over_once_under_its_effects_message_id(book: Book) -> None:
    proposal = book.propose("ledger.mail", subject="Ihr Angebot für 40 Plätze", body="Grüße\n.\nline\n")

    result = book.perform(proposal.effect_id)

    assert isinstance(result, Result)
    assert result.reference == f"<{proposal.effect_id}@signalbox.example>"
    [mail] = book.witness.mails(proposal.effect_id)
    assert mail["message_id"] == result.reference
    assert mail["envelope"] == {"mail_from": "offers@signalbox.example", "rcpt_tos": [to(book)]}
    assert mail["subject"] == "Ihr Angebot für 40 Plätze"
    assert mail["text"].replace("\r\n", "\n") == "Grüße\n.\nline\n"
    assert message_from_string(mail["raw"], policy=default)["X-Effect-ID"] == proposal.effect_id
    assert book.outcomes(proposal.effect_id) == ["completed"]


def test_a_mail_whose_reply_was_lost_goes_to_review_and_is_never_sent_again(book: Book) -> None:
    proposal = book.propose("ledger.mail")
    book.witness.order_mail("drop_after_data", to(book))

    assert isinstance(book.perform(proposal.effect_id), Wait)

    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    assert book.reviews(proposal.effect_id) == ["unqueryable"]
    assert book.outcomes(proposal.effect_id) == ["unknown"]
    for _ in range(3):
        assert isinstance(book.perform_now(proposal.effect_id), Wait)
    assert proposal.effect_id not in reconcile.looks_due()
    assert len(book.witness.mails(proposal.effect_id)) == 1


@pytest.mark.parametrize("place", ["rcpt", "data"])
def test_a_refused_recipient_or_message_is_final(book: Book, place: str) -> None:
    proposal = book.propose("ledger.mail")
    book.witness.order_mail("refuse", to(book), at=place)
    with pytest.raises(Refused, match="550"):
        book.perform(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("failed", "refused")
    assert book.witness.mails(proposal.effect_id) == []


@pytest.mark.parametrize("place", ["rcpt", "data"])
def test_asked_to_wait_a_mail_comes_again(book: Book, place: str) -> None:
    """A 4yz reply says that it was not taken: nothing is unknown."""
    proposal = book.propose("ledger.mail")
    book.witness.order_mail("defer", to(book), at=place)
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.standing(proposal.effect_id) == ("pending", "backoff")
    assert isinstance(book.perform_now(proposal.effect_id), Result)
    assert book.outcomes(proposal.effect_id) == ["not_sent", "completed"]
    assert len(book.witness.mails(proposal.effect_id)) == 1


def test_a_reply_that_hangs_is_unknown_at_the_total_deadline(book: Book) -> None:
    proposal = book.propose("ledger.quick_mail")
    book.witness.order_mail("hang", to(book), seconds=3)
    began = time.monotonic()
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert 0.9 <= time.monotonic() - began <= 2.0
    assert book.outcomes(proposal.effect_id) == ["unknown"]
    assert book.reviews(proposal.effect_id) == ["unqueryable"]


def test_a_mail_server_that_is_not_there_gets_nothing_and_is_tried_again(book: Book) -> None:
    proposal = book.propose("ledger.mail")
    book.point(f"smtp://127.0.0.1:{free_port()}", receiver="mail")
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.standing(proposal.effect_id) == ("pending", "backoff")
    assert book.reviews(proposal.effect_id) == []


def test_a_mail_server_that_is_not_among_the_hosts_is_not_spoken_to(book: Book) -> None:
    proposal = book.propose("ledger.mail")
    book.point(f"smtp://127.0.0.1:{book.witness.smtp_port}", receiver="mail", hosts=["mail.example"])
    book.perform(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == ["not_sent"]


def test_a_password_never_goes_over_an_open_line(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catcher offers no TLS: then nothing is sent, and the words hold no secret."""
    monkeypatch.setenv("SIGNALBOX_RECEIVER_SECRET_MAIL", "offers:canary-77")
    logins: list[object] = []
    monkeypatch.setattr(smtplib.SMTP, "login", lambda *args: logins.append(args))
    book.point(f"smtp://127.0.0.1:{book.witness.smtp_port}", receiver="mail", secret_name="mail")
    proposal = book.propose("ledger.mail")
    book.perform(proposal.effect_id)
    [attempt] = EffectAttempt.objects.filter(effect_id=proposal.effect_id)
    assert attempt.outcome == "not_sent"
    assert "canary" not in attempt.problem
    assert logins == []


def proposed(book: Book, recipient: str) -> str:
    """The effect's id, empty where the recipient is refused when the mail is asked for."""
    try:
        return book.propose("ledger.mail", to=recipient).effect_id
    except Invalid:
        return ""


@pytest.mark.parametrize("recipient", ["jörg@harborpine.example", "nobody", "a@b.example, c@d.example", "<>"])
def test_an_odd_recipient_ends_in_an_outcome_and_never_in_an_error(book: Book, recipient: str) -> None:
    """Refused when it is asked for, refused by the server, or delivered: in no case an attempt left in the air."""
    if effect_id := proposed(book, recipient):
        refusal = book.refusal(effect_id)
        assert (book.standing(effect_id) == ("failed", "refused")) is bool(refusal)
        assert "sending" not in book.outcomes(effect_id)
        for mail in book.witness.mails(effect_id):
            assert mail["envelope"]["rcpt_tos"] == [recipient]


def test_a_server_that_echoes_the_recipient_does_not_get_it_shown(book: Book) -> None:
    """Real servers name the address in their refusals, and the contract protects it."""
    server = OddMailServer(RCPT="550 5.1.1 no such user: {command}")
    book.point(server.url, receiver="mail")
    proposal = book.propose("ledger.mail")
    try:
        with pytest.raises(Refused) as refused:
            book.perform(proposal.effect_id)
    finally:
        server.stop()
    [attempt] = EffectAttempt.objects.filter(effect_id=proposal.effect_id)
    for shown in (str(refused.value), attempt.problem, book.effect(proposal.effect_id).problem):
        assert "550" in shown
        assert to(book) not in shown


def test_a_server_that_answers_nonsense_is_not_sent_or_unknown(book: Book) -> None:
    server = OddMailServer(MAIL="nonsense")
    book.point(server.url, receiver="mail")
    proposal = book.propose("ledger.mail")
    try:
        assert isinstance(book.perform(proposal.effect_id), Wait)
    finally:
        server.stop()
    assert book.outcomes(proposal.effect_id) in (["not_sent"], ["unknown"])


# --- what a mail server may say, and over which line -------------------------------------------------------------------


@pytest.mark.parametrize("code", [251, 252, 299])
def test_an_odd_reply_to_the_message_is_no_refusal(book: Book, code: int) -> None:
    """It was taken, or may have been: sent again it could arrive twice."""
    server = OddMailServer(DATA="354 go on", **{".": f"{code} well"})
    book.point(server.url, receiver="mail")
    proposal = book.propose("ledger.mail")
    try:
        assert isinstance(book.perform(proposal.effect_id), Wait)
    finally:
        server.stop()
    assert book.outcomes(proposal.effect_id) == ["unknown"]
    assert book.reviews(proposal.effect_id) == ["unqueryable"]


class Post:
    """Takes mail over TLS from whoever logs in as robot, under a certificate for localhost."""

    def __init__(self, folder: Path) -> None:
        self.got: list[str] = []
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        _make_certificate(key, certificate)
        self.certificate = certificate
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.controller = Controller(
            self,
            hostname="127.0.0.1",
            port=free_port(),
            tls_context=context,
            require_starttls=True,
            auth_required=True,
            authenticator=lambda *given: AuthResult(success=given[-1].password == b"s3cret"),
        )

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.got.append(envelope.content.decode())
        return "250 kept"


def _make_certificate(key_file: Path, certificate_file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    server = Post(tmp_path)
    server.controller.start()
    yield server
    server.controller.stop()


def _with_login(book: Book, post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_RECEIVER_SECRET_POST", "robot:s3cret")
    book.point(
        f"smtp://localhost:{post.controller.port}", receiver="mail", hosts=["localhost"], secret_name="post"
    )


def test_a_mail_goes_over_tls_with_its_login(book: Book, post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(post.certificate))
    _with_login(book, post, monkeypatch)
    proposal = book.propose("ledger.mail")
    result = book.perform(proposal.effect_id)
    assert isinstance(result, Result)
    assert len(post.got) == 1
    assert proposal.effect_id in post.got[0]


def test_a_server_whose_certificate_nobody_vouches_for_gets_no_password(
    book: Book, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_login(book, post, monkeypatch)
    proposal = book.propose("ledger.mail")
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.outcomes(proposal.effect_id) == ["not_sent"]
    assert post.got == []
