"""Performing an effect at the real receiver: what each answer, or its loss, does to the ledger.

At the end of every test the fixture compares the receiver's own records with the attempts: one request, one attempt.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpcore
import pytest
from django.db import connection
from django.db.models.functions import Now

from effects import ledger, moves, reconcile, selectors
from effects.contracts import LEASE_MARGIN
from effects.intents import Conflict
from effects.ledger import Refused, Unreachable, Visit, Wait
from effects.models import Effect, EffectAttempt
from effects.origin import OriginLost, Result
from effects.selectors import request_of, revision_of
from tests.effects.book import Book, Run, at_once, tables_that_hold
from tests.effects.odd import OddServer, Play, says
from tests.stack import free_port

Odd = Callable[[Play], OddServer]


def done(outcome: Result | Wait) -> Result:
    assert isinstance(outcome, Result), outcome
    return outcome


def stored_body(effect: Effect) -> str:
    """The exact body that the ledger keeps for sending."""
    request = json.loads(request_of(effect, revision_of(effect)))
    return base64.b64decode(request["body"]).decode()


# What goes well


def test_an_effect_is_brought_about_once_with_its_key_and_the_stored_bytes(book: Book) -> None:
    proposal = book.propose()

    result = done(book.perform(proposal.effect_id))

    [made] = book.witness.effects()
    assert result.completed
    assert result.reference == made["object_id"]
    assert isinstance(result.answer, dict)
    assert result.answer["id"] == made["object_id"]
    effect = book.effect(proposal.effect_id)
    assert (effect.status, effect.provider_reference, effect.problem) == ("completed", made["object_id"], "")
    assert made["external_id"] == effect.id
    [request] = book.witness.requests()
    assert request["key"] == effect.id
    assert request["body"] == stored_body(effect)
    [attempt] = EffectAttempt.objects.filter(effect=effect)
    assert (attempt.n, attempt.outcome, attempt.answer_status) == (1, "completed", "201")
    assert (attempt.worker_id, attempt.origin) == (book.run.worker_id, book.run.name)
    assert attempt.provider_reference == made["object_id"]
    assert attempt.latency_ms is not None
    assert book.witness.rx == (1, 1)


def test_a_completed_effect_gives_back_its_stored_result(book: Book) -> None:
    proposal = book.propose()
    first = book.perform(proposal.effect_id)
    assert book.perform(proposal.effect_id) == first
    assert book.outcomes(proposal.effect_id) == ["completed"]


def test_a_stored_result_asks_nothing_of_today(book: Book) -> None:
    """What is settled is given back whatever has become of the receiver since: no review of it, no sending."""
    proposal = book.propose()
    first = book.perform(proposal.effect_id)
    book.point("http://127.0.0.1:9", account="another-account", secret_name="gone")

    assert book.perform(proposal.effect_id) == first
    assert book.reviews(proposal.effect_id) == []


def test_at_most_one_sending_a_visit(book: Book) -> None:
    proposal = book.propose()
    visit = Visit()
    book.witness.order("drop_after_commit")
    ledger.perform(book.run, proposal.effect_id, visit)
    book.make_due(proposal.effect_id)
    assert isinstance(ledger.perform(book.run, proposal.effect_id, visit), Wait)
    assert book.outcomes(proposal.effect_id) == ["unknown"]


def test_the_attempt_is_committed_before_the_first_byte(kept: Book, odd: Odd) -> None:
    """The receiver, as it gets the request, sees the attempt on a connection of its own."""
    seen: list[Any] = []

    def look(request: bytes, client: socket.socket) -> None:
        seen.extend(
            EffectAttempt.objects.filter(effect__workspace=kept.world.workspace).values_list(
                "outcome", "fence"
            )
        )
        connection.close()
        says("201 Created", json.dumps({**kept.usual("ledger.offer"), "id": "off_1"}).encode())(
            request, client
        )

    kept.point(odd(look).url)
    done(kept.perform(kept.propose().effect_id))
    assert seen == [("sending", 1)]


# The answer is lost: by key


@pytest.mark.parametrize(
    ("fault", "made_at_first"),
    [
        ("drop_after_commit", True),
        ("drop_before", False),
        ("500_after", True),
        ("500_before", False),
        ("malformed", True),
    ],
)
def test_by_key_an_unknown_outcome_is_repeated_with_the_same_key_and_bytes(
    book: Book, fault: str, made_at_first: bool
) -> None:
    proposal = book.propose()
    book.witness.order(fault)

    waits = book.perform(proposal.effect_id)

    assert isinstance(waits, Wait)
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    assert book.effect(proposal.effect_id).unresolved
    assert book.witness.rx == (int(made_at_first), 1)

    result = done(book.perform_now(proposal.effect_id))

    assert book.outcomes(proposal.effect_id) == ["unknown", "completed"]
    assert book.witness.rx == (1, 2)
    first, second = book.witness.requests()
    assert (first["key"], first["body"]) == (second["key"], second["body"])
    assert first["key"] == proposal.effect_id
    assert result.reference == book.witness.effects()[0]["object_id"]
    assert not book.effect(proposal.effect_id).unresolved


def test_a_lost_answer_may_have_been_reset(book: Book) -> None:
    proposal = book.propose()
    book.witness.order("drop_after_commit", reset=True)
    book.perform(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == ["unknown"]
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")


def test_uncertain_is_not_sent_again_before_it_is_due(book: Book) -> None:
    proposal = book.propose()
    book.witness.order("drop_after_commit")
    book.perform(proposal.effect_id)
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.outcomes(proposal.effect_id) == ["unknown"]


@pytest.mark.parametrize("answer", ["401", "429", "503_unprocessed"])
def test_a_later_refusal_does_not_make_an_unknown_attempt_undone(book: Book, answer: str) -> None:
    """Attempt 1 made the effect and timed out; attempt 2 is refused: uncertain, never failed, never backoff."""
    proposal = book.propose()
    book.witness.order("drop_after_commit")
    book.perform(proposal.effect_id)
    book.witness.order(answer)

    waits = book.perform_now(proposal.effect_id)

    assert isinstance(waits, Wait)
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    assert book.outcomes(proposal.effect_id)[0] == "unknown"
    done(book.perform_now(proposal.effect_id))
    assert book.witness.rx == (1, 3)


def test_unreachable_does_not_make_an_unknown_attempt_undone(book: Book) -> None:
    proposal = book.propose()
    book.witness.order("drop_after_commit")
    book.perform(proposal.effect_id)
    url = book.effect(proposal.effect_id).receiver.base_url
    book.point(f"http://127.0.0.1:{free_port()}")
    book.perform_now(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == ["unknown", "not_sent"]
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    book.point(url)
    done(book.perform_now(proposal.effect_id))
    assert book.witness.rx == (1, 2)


def test_after_its_window_a_key_is_never_sent_again(book: Book) -> None:
    """No look-up either: a person decides."""
    proposal = book.propose("ledger.unasked_key")
    book.witness.order("drop_after_commit")
    book.perform(proposal.effect_id)
    Effect.objects.filter(id=proposal.effect_id).update(key_until=Now() - timedelta(seconds=1))

    assert isinstance(book.perform_now(proposal.effect_id), Wait)
    reconcile.review_expired_keys()

    assert book.outcomes(proposal.effect_id) == ["unknown"]
    assert book.reviews(proposal.effect_id) == ["key_expired"]
    # Once reviewed, it stays so: neither a second review, nor a sending when the clock is turned back.
    assert reconcile.review_expired_keys() == 0
    Effect.objects.filter(id=proposal.effect_id).update(key_until=Now() + timedelta(hours=1))
    book.perform_now(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == ["unknown"]


def test_an_unknown_retention_is_none(book: Book) -> None:
    proposal = book.propose("ledger.no_window")
    book.witness.order("drop_after_commit")
    book.perform(proposal.effect_id)
    book.perform_now(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == ["unknown"]


def test_after_its_window_a_key_is_looked_up(book: Book) -> None:
    proposal = book.propose()
    book.witness.order("drop_after_commit")
    book.perform(proposal.effect_id)
    Effect.objects.filter(id=proposal.effect_id).update(key_until=Now() - timedelta(seconds=1), due_at=Now())
    assert proposal.effect_id in reconcile.looks_due()
    assert reconcile.look(proposal.effect_id) == "found"
    assert book.standing(proposal.effect_id) == ("completed", "")
    assert book.witness.rx == (1, 1)


def test_inside_its_window_a_key_that_nobody_repeats_is_looked_up(book: Book) -> None:
    """Its run may be cancelled or failed: somebody still has to find out."""
    proposal = book.propose()
    book.witness.order("drop_after_commit")
    book.perform(proposal.effect_id)
    book.make_due(proposal.effect_id)
    assert proposal.effect_id not in reconcile.looks_due()
    Effect.objects.filter(id=proposal.effect_id).update(due_at=Now() - reconcile.NOBODY_REPEATS)
    assert proposal.effect_id in reconcile.looks_due()


def test_a_key_whose_window_is_over_and_whose_looks_find_nothing_goes_to_a_person(book: Book) -> None:
    """Nothing can settle it by itself any more: it must not stay uncertain for ever with nobody told."""
    proposal = book.propose()
    book.witness.order("drop_before")
    book.perform(proposal.effect_id)
    for _ in range(reconcile.LOOKS + 1):
        Effect.objects.filter(id=proposal.effect_id).update(
            key_until=Now() - timedelta(hours=1), last_sent_at=Now() - timedelta(hours=9), due_at=Now()
        )
        assert reconcile.look(proposal.effect_id) == "absent"
        reconcile.review_expired_keys()
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    assert book.reviews(proposal.effect_id) != []


# The receiver refuses, or asks to wait


def test_a_final_refusal_is_failed_and_raised(book: Book) -> None:
    effect_id = book.propose("ledger.customer_note", customer_id="bad id").effect_id
    approved = book.decide(book.ask(effect_id))
    assert approved.decision == "approve"

    with pytest.raises(Refused) as refused:
        book.perform(effect_id)

    assert not isinstance(refused.value, Unreachable)
    assert refused.value.effect_id == effect_id
    # The receiver's words for people, not only its code.
    assert "there is nothing at /v1/customers/bad id" in str(refused.value)
    assert book.standing(effect_id) == ("failed", "refused")
    assert book.outcomes(effect_id) == ["refused"]
    assert book.witness.rx == (0, 1)
    with pytest.raises(Refused):
        book.perform(effect_id)
    assert book.witness.rx == (0, 1)


def test_401_at_the_first_attempt_is_a_refusal(book: Book) -> None:
    proposal = book.propose()
    book.witness.order("401")
    with pytest.raises(Refused, match="401"):
        book.perform(proposal.effect_id)
    assert book.standing(proposal.effect_id) == ("failed", "refused")


@pytest.mark.parametrize("fault", ["429", "503_unprocessed"])
def test_asked_to_wait_it_comes_back_when_it_was_told(book: Book, fault: str) -> None:
    proposal = book.propose()
    book.witness.order(fault, retry_after=7)

    assert isinstance(book.perform(proposal.effect_id), Wait)

    effect = book.effect(proposal.effect_id)
    assert book.standing(effect.id) == ("pending", "backoff")
    assert not effect.unresolved
    assert book.outcomes(effect.id) == ["not_sent"]
    left = effect.due_at - Effect.objects.filter(id=effect.id).values_list(Now(), flat=True)[0]
    assert timedelta(seconds=4) < left <= timedelta(seconds=7)
    # Not before.
    assert isinstance(book.perform(effect.id), Wait)
    assert book.witness.rx == (0, 1)
    done(book.perform_now(effect.id))
    assert book.outcomes(effect.id) == ["not_sent", "completed"]
    assert book.witness.rx == (1, 2)


def test_409_in_progress_waits_with_the_same_key(book: Book) -> None:
    proposal = book.propose()
    book.witness.order("409_in_progress", times=3)
    for _ in range(3):
        assert isinstance(book.perform_now(proposal.effect_id), Wait)
        assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    done(book.perform_now(proposal.effect_id))
    assert book.witness.rx == (1, 4)
    assert len({(one["key"], one["body"]) for one in book.witness.requests()}) == 1


def test_a_key_that_was_used_with_other_bytes_is_a_mismatch_and_proves_nothing(book: Book) -> None:
    """The receiver has something under our key: that is no proof that nothing exists. A person looks at it."""
    proposal = book.propose()
    headers = {
        "Authorization": f"Bearer {book.witness.account}:s3cret",
        "Idempotency-Key": proposal.effect_id,
    }
    book.witness.client.post(f"{book.witness.receiver}/v1/offers", json={"other": 1}, headers=headers)
    book.strangers += 1

    assert isinstance(book.perform(proposal.effect_id), Wait)

    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    assert book.reviews(proposal.effect_id) == ["mismatch"]


def test_202_is_accepted_and_not_completed(book: Book) -> None:
    proposal = book.propose()
    book.witness.order("202_webhook", final="never")

    assert isinstance(book.perform(proposal.effect_id), Wait)

    effect = book.effect(proposal.effect_id)
    assert (effect.status, effect.sub_state) == ("accepted", "")
    assert effect.due_at is not None
    assert book.outcomes(effect.id) == ["accepted"]
    assert done(book.perform(effect.id, until="accepted")).status == "accepted"
    book.perform(effect.id)
    assert book.witness.rx == (0, 1)


def test_a_wrong_amount_is_a_mismatch_and_no_completion(book: Book) -> None:
    proposal = book.propose()
    book.witness.order("wrong_amount")

    assert isinstance(book.perform(proposal.effect_id), Wait)

    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    assert book.reviews(proposal.effect_id) == ["mismatch"]
    assert isinstance(book.perform_now(proposal.effect_id), Wait)
    assert book.witness.rx == (1, 1)


# Nothing leaves


def test_a_receiver_that_can_not_be_reached_is_tried_again_then_held(book: Book) -> None:
    url = book.witness.receiver
    proposal = book.propose("ledger.two_tries")
    book.point(f"http://127.0.0.1:{free_port()}")

    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.standing(proposal.effect_id) == ("pending", "backoff")
    with pytest.raises(Unreachable) as unreachable:
        book.perform_now(proposal.effect_id)

    assert unreachable.value.effect_id == proposal.effect_id
    assert book.standing(proposal.effect_id) == ("pending", "held")
    assert book.outcomes(proposal.effect_id) == ["not_sent", "not_sent"]
    with pytest.raises(Unreachable):
        book.perform(proposal.effect_id)
    # A person continues it once the receiver is back.
    book.point(url)
    assert moves.make_ready_again(proposal.effect_id)
    done(book.perform(proposal.effect_id))
    assert book.witness.rx == (1, 1)


def test_its_time_over_in_backoff_the_sweep_holds_it(book: Book) -> None:
    proposal = book.propose()
    book.point(f"http://127.0.0.1:{free_port()}")
    book.perform(proposal.effect_id)
    assert reconcile.hold_what_is_over() == 0
    Effect.objects.filter(id=proposal.effect_id).update(give_up_at=Now() - timedelta(seconds=1))
    assert reconcile.hold_what_is_over() == 1
    assert book.standing(proposal.effect_id) == ("pending", "held")


def test_without_its_secret_nothing_is_sent_and_the_words_say_what_lacks(book: Book) -> None:
    proposal = book.propose()
    book.point(book.witness.receiver, secret_name="crm-token")
    book.perform(proposal.effect_id)
    [attempt] = EffectAttempt.objects.filter(effect_id=proposal.effect_id)
    assert (attempt.outcome, attempt.answer_status) == ("not_sent", "")
    assert "SIGNALBOX_RECEIVER_SECRET_CRM_TOKEN" in attempt.problem
    assert book.witness.requests() == []


@pytest.mark.parametrize("secret", ["line\nbreak", "ümlaut", "trailing\n"])
def test_a_secret_that_no_header_can_carry_is_not_sent_and_not_told(
    book: Book, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mounted secret often ends in a line break. Whatever the client library says of it stays out of the rows."""
    monkeypatch.setenv("SIGNALBOX_RECEIVER_SECRET_ODD", f"{book.witness.account}:{secret}")
    proposal = book.propose()
    book.point(book.witness.receiver, secret_name="odd")

    book.perform(proposal.effect_id)

    [attempt] = EffectAttempt.objects.filter(effect_id=proposal.effect_id)
    assert attempt.outcome in ("not_sent", "completed")
    for told in (attempt.problem, book.effect(proposal.effect_id).problem):
        assert secret.strip() not in told
        assert repr(secret)[1:-1] not in told


def test_a_host_that_is_not_among_the_receivers_is_not_spoken_to(book: Book) -> None:
    proposal = book.propose()
    book.point(book.witness.receiver, hosts=["crm.example"])
    book.perform(proposal.effect_id)
    [attempt] = EffectAttempt.objects.filter(effect_id=proposal.effect_id)
    assert (attempt.outcome, attempt.problem) == ("not_sent", "127.0.0.1 is not among the receiver's hosts")
    assert book.standing(proposal.effect_id) == ("pending", "backoff")


def test_in_production_a_private_address_is_not_spoken_to(book: Book, settings: Any) -> None:
    settings.PRODUCTION = True
    book.point("https://127.0.0.1:443", hosts=["127.0.0.1"])
    proposal = book.propose()
    book.perform(proposal.effect_id)
    [attempt] = EffectAttempt.objects.filter(effect_id=proposal.effect_id)
    assert attempt.outcome == "not_sent"
    assert "not a public address" in attempt.problem


def test_in_production_nothing_goes_out_without_tls(
    book: Book, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret would be readable on the way."""
    connected: list[Any] = []

    def refuse(*args: Any, **_kwargs: Any) -> Any:
        connected.append(args)
        raise httpcore.ConnectError("this test lets nothing out")

    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", refuse)
    settings.PRODUCTION = True
    book.point("http://8.8.8.8:80", hosts=["8.8.8.8"])
    proposal = book.propose()
    book.perform(proposal.effect_id)
    assert connected == []
    assert book.outcomes(proposal.effect_id) == ["not_sent"]


@pytest.mark.parametrize(
    "url", ["gopher://127.0.0.1:9", "127.0.0.1:9", "http://127.0.0.1:99999", "http://[::1"]
)
def test_an_address_that_makes_no_sense_is_not_sent(book: Book, url: str) -> None:
    proposal = book.propose()
    book.point(url, hosts=["127.0.0.1", "::1", ""])
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.outcomes(proposal.effect_id) == ["not_sent"]
    assert book.standing(proposal.effect_id) == ("pending", "backoff")


def test_a_name_that_can_not_be_resolved_is_not_sent(book: Book) -> None:
    proposal = book.propose()
    book.point("http://nobody.invalid", hosts=["nobody.invalid"])
    book.perform(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == ["not_sent"]


def test_a_redirect_is_not_followed(book: Book, odd: Odd) -> None:
    """Where it leads nobody has allowed, and the method may change on the way. What came of it is not known."""
    target = odd(says("201 Created", b"{}"))
    book.point(odd(says("302 Found", b"", f"Location: {target.url}/v1/offers")).url)
    proposal = book.propose()
    book.perform(proposal.effect_id)
    assert target.requests == []
    assert book.outcomes(proposal.effect_id) == ["unknown"]
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")


# Whose it is


def test_an_effect_of_another_run_is_never_acted_on(book: Book) -> None:
    proposal = book.propose()
    with pytest.raises(Conflict):
        book.perform(proposal.effect_id, run=Run(book.world.workspace.id))
    with pytest.raises(Conflict):
        book.perform(proposal.effect_id, run=Run("another-workspace", run_id=book.run.run_id))
    with pytest.raises(Conflict):
        book.perform("eff_00000000000000000000000000000000")
    assert book.outcomes(proposal.effect_id) == []


def test_an_origin_that_is_lost_sends_nothing(book: Book) -> None:
    proposal = book.propose()
    book.run.lost = True
    with pytest.raises(OriginLost):
        book.perform(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == []
    assert book.standing(proposal.effect_id) == ("pending", "ready")


def test_a_receiver_whose_account_changed_gets_nothing(book: Book) -> None:
    proposal = book.propose()
    book.point(book.witness.receiver, account="another-account")
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.reviews(proposal.effect_id) == ["mismatch"]
    assert book.outcomes(proposal.effect_id) == []


@pytest.mark.parametrize("standing", ["recorded", "awaiting_approval"])
def test_without_a_grant_nothing_is_sent(book: Book, standing: str) -> None:
    proposal = book.propose("ledger.asked_offer")
    if standing == "awaiting_approval":
        book.ask(proposal.effect_id)
    assert isinstance(book.perform(proposal.effect_id), Wait)
    assert book.standing(proposal.effect_id) == ("pending", standing)
    assert book.outcomes(proposal.effect_id) == []


def test_a_grant_whose_time_is_over_is_asked_for_again(book: Book) -> None:
    effect = book.approved()
    Effect.objects.filter(id=effect.id).update(grant_until=Now() - timedelta(seconds=1))
    assert isinstance(book.perform(effect.id), Wait)
    assert book.standing(effect.id) == ("pending", "awaiting_approval")
    assert book.outcomes(effect.id) == []


def test_a_grant_covers_every_attempt_with_these_bytes(book: Book) -> None:
    effect = book.approved()
    book.witness.order("429")
    book.perform(effect.id)
    done(book.perform_now(effect.id))
    assert book.effect(effect.id).approvals.count() == 1


def test_a_grant_that_ends_while_uncertain_takes_no_mark_away(book: Book) -> None:
    effect = book.approved()
    book.witness.order("drop_after_commit")
    book.perform(effect.id)
    Effect.objects.filter(id=effect.id).update(grant_until=Now() - timedelta(seconds=1))
    assert isinstance(book.perform_now(effect.id), Wait)
    assert book.standing(effect.id) == ("pending", "uncertain")
    assert book.outcomes(effect.id) == ["unknown"]
    book.make_due(effect.id)
    assert reconcile.look(effect.id) == "found"
    assert book.witness.rx == (1, 1)


def test_ten_workers_that_perform_one_effect_make_one_attempt(kept: Book) -> None:
    proposal = kept.propose()
    kept.witness.order("slow", seconds=0.5)

    answers = at_once(10, lambda _: kept.perform(proposal.effect_id))

    assert not [one for one in answers if isinstance(one, Exception)]
    assert sum(isinstance(one, Result) for one in answers) >= 1
    assert kept.outcomes(proposal.effect_id) == ["completed"]
    assert kept.witness.rx == (1, 1)


# Time


def timed(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("fault", "options"),
    [("hang_after_commit", {"seconds": 6}), ("hang_before", {"seconds": 6}), ("drip", {"interval": 0.1})],
)
def test_the_total_deadline_closes_it_and_the_outcome_is_unknown(
    book: Book, fault: str, options: dict[str, float]
) -> None:
    """Also against a receiver that sends a byte now and then, which no time-out of a read would notice."""
    proposal = book.propose("ledger.quick_offer")
    book.witness.order(fault, **options)

    took = timed(lambda: book.perform(proposal.effect_id))

    assert 0.9 <= took <= 2.0, "the total deadline is 1 s"
    assert book.outcomes(proposal.effect_id) == ["unknown"]
    assert book.standing(proposal.effect_id) == ("pending", "uncertain")
    assert book.witness.rx == (0 if fault == "hang_before" else 1, 1)


def test_headers_that_drip_are_closed_at_the_total_deadline(book: Book, odd: Odd) -> None:
    stop = threading.Event()

    def drip(_request: bytes, client: socket.socket) -> None:
        for byte in b"HTTP/1.1 201 Created\r\nX-Slow: " + b"a" * 200:
            if stop.wait(0.1):
                return
            try:
                client.sendall(bytes([byte]))
            except OSError:
                return

    book.point(odd(drip).url)
    proposal = book.propose("ledger.quick_offer")
    took = timed(lambda: book.perform(proposal.effect_id))
    stop.set()
    assert 0.9 <= took <= 2.0
    assert book.outcomes(proposal.effect_id) == ["unknown"]


def test_a_sender_that_comes_to_send_too_late_sends_nothing(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between its claim and its first byte for longer than the lease allows: others may have looked already."""
    read = selectors.revision_of

    def held_up(*args: Any) -> Any:
        time.sleep(
            LEASE_MARGIN + 0.3
        )  # the first byte must leave within the margin, or the lease ends meanwhile
        return read(*args)

    monkeypatch.setattr("effects.ledger.revision_of", held_up)
    proposal = book.propose("ledger.quick_offer")
    book.perform(proposal.effect_id)
    assert book.outcomes(proposal.effect_id) == ["not_sent"]
    assert book.witness.requests() == []


# What is kept


CANARY = "canary-4f9d1c"


@pytest.fixture
def canary(book: Book, monkeypatch: pytest.MonkeyPatch) -> str:
    """The receiver's secret is a word that can be looked for."""
    monkeypatch.setenv("SIGNALBOX_RECEIVER_SECRET_CANARY", f"{book.witness.account}:{CANARY}")
    book.point(book.witness.receiver, secret_name="canary")
    return CANARY


@pytest.mark.parametrize("fault", [None, "401", "500_after", "429", "drop_before", "malformed"])
def test_a_credential_is_stored_nowhere(book: Book, canary: str, fault: str | None) -> None:
    proposal = book.propose()
    if fault:
        book.witness.order(fault)
    assert canary not in book.refusal(proposal.effect_id)
    assert tables_that_hold(canary) == []
    # The search finds what is there.
    assert "effects_effect" in tables_that_hold(proposal.effect_id)


@pytest.mark.parametrize("status", ["400 Bad Request", "500 Oops", "409 Conflict", "200 OK", "201 Created"])
def test_a_receiver_that_echoes_our_credential_does_not_get_it_stored(
    book: Book, canary: str, odd: Odd, status: str
) -> None:
    """Error pages of gateways show the headers that they got."""

    def echo(request: bytes, client: socket.socket) -> None:
        header = next(line for line in request.split(b"\r\n") if line.lower().startswith(b"authorization"))
        body = header if status.startswith("200") else json.dumps({"message": header.decode()}).encode()
        says(status, body)(request, client)

    server = odd(echo)
    book.point(server.url)
    proposal = book.propose()
    assert canary not in book.refusal(proposal.effect_id)
    assert canary.encode() in server.requests[0]
    assert tables_that_hold(canary) == []


def test_a_file_of_the_secret_is_read_at_the_moment_of_sending(
    book: Book, tmp_path: Path, monkeypatch: Any
) -> None:
    """A rotated secret needs no restart."""
    monkeypatch.setenv("SIGNALBOX_RECEIVER_SECRETS", str(tmp_path))
    book.point(book.witness.receiver, secret_name="crm")
    (tmp_path / "crm").write_text("no account\n")
    first = book.propose()
    with pytest.raises(Refused):
        book.perform(first.effect_id)
    book.strangers -= 1  # it came without an account, so the account's records lack it
    (tmp_path / "crm").write_text(f"{book.witness.account}:s3cret\n")
    done(book.perform(book.propose(key="two").effect_id))
