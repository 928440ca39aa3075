"""The pages around the effect log, each in what it can look like: made by the commands, at the demo's receivers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from django.db.models.functions import Now

from effects import moves, reconcile
from effects.commands import bulk_recover, settle_review, stop_sending
from effects.models import Effect, OrphanScan, Probe, Recovery, Review
from effects.selectors import standing_stops
from effects.states import ReviewOutcome, ReviewReason, ScanStatus, StopScope
from tests.shots.scenes import MAIL, OFFER, TICKET, Scenes

_numbers = itertools.count(1)
Pages = Iterator[tuple[str, dict[str, str]]]


@dataclass
class DeskScenes:
    """What the pages of one company show. *scenes*: its effects."""

    scenes: Scenes

    @property
    def here(self) -> str:
        return f"/w/{self.scenes.company.workspace.id}"

    def token(self) -> str:
        return f"desk-shots-{next(_numbers)}"

    def before_anything(self, names: list[str]) -> Iterator[tuple[str, str]]:
        """What stands on the pages while nothing has happened."""
        if names and "empty" not in names:
            return
        for kind, path in {
            "reviews": "reviews/",
            "reviews-second": "reviews/?view=second",
            "reviews-closed": "reviews/?view=closed",
            "recover": "recover/",
            "recoveries": "recoveries/",
            "stops": "stops/",
        }.items():
            yield f"{kind}-empty", f"{self.here}/{path}"

    def every(self, names: list[str]) -> Iterator[tuple[str, str]]:
        """Each page's name, and its address; made when it is asked for."""
        for name, make in {
            "desk": self.desk,
            "many": self.many,
            "recover": self.recover,
            "six": self.six,
            "stops": self.stops,
            "contracts": self.contracts,
        }.items():
            if not names or name in names:
                for what, pages in make():
                    yield from ((f"{kind}-{what}", address) for kind, address in pages.items())

    # -- the Review desk -------------------------------------------------------------------------------------------

    def review(self, effect: Effect, reason: ReviewReason, sentence: str) -> Review:
        moves.open_review(effect, reason, sentence)  # unless the ledger itself has opened it
        return Review.objects.get(effect=effect, reason=reason, closed_at=None)

    def desk(self) -> Pages:
        mail = self.review(
            self.scenes.no_dedup(), ReviewReason.UNQUERYABLE, "mail can't be asked whether it has it."
        )
        late = self.review(
            self.scenes.window_passed(),
            ReviewReason.KEY_EXPIRED,
            "The key's window closed two days ago, and crm would not know a repeat.",
        )
        several = self.scenes.completed()
        own = several.provider_reference
        moves.observe(
            several,
            "look_up",
            "several",
            f"crm has 2 offers with this id: {own} and off_000917.",
            references=[own, "off_000917"],
        )
        twice = self.review(several, ReviewReason.DUPLICATE_FOUND, "crm has 2 offers with this id.")
        other = self.scenes.window_open()
        moves.observe(
            other,
            "look_up",
            "mismatch",
            "crm has off_000918 with amount_minor 766100, not 766000.",
            reference="off_000918",
        )
        differs = self.review(
            other, ReviewReason.MISMATCH, "crm has off_000918 with amount_minor 766100, not 766000."
        )
        orphan = self.orphan()
        proposed = self.review(
            self.scenes.no_dedup(), ReviewReason.UNQUERYABLE, "mail can't be asked whether it has it."
        )
        self.settle(proposed, ReviewOutcome.DONE, evidence="<20261201.4711@mail.northgate.example>")
        absent = self.review(
            self.scenes.not_found(),
            ReviewReason.KEY_EXPIRED,
            "The key's window closed two days ago. The receiver has no object with exactly this id.",
        )
        flying = Review.objects.get(effect=self.scenes.order_in_flight(), closed_at=None)
        expired = "The key's window closed two days ago."
        since = self.review(self.to_be_found(self.scenes), ReviewReason.KEY_EXPIRED, expired)
        answered = self.review(
            self.to_be_found(self.scenes),
            ReviewReason.UNQUERYABLE,
            "crm did not answer, seven times in a row.",
        )
        for one in (since, answered):
            assert one.effect is not None
            self.scenes.look(one.effect)
        Review.objects.filter(id=late.id).update(opened_at=Now() - timedelta(days=2))
        Review.objects.filter(id=mail.id).update(opened_at=Now() - timedelta(hours=3))
        closed = self.review(
            self.scenes.window_passed(), ReviewReason.KEY_EXPIRED, "The key's window closed two days ago."
        )
        self.settle(closed, ReviewOutcome.NOT_DONE)
        desk = f"{self.here}/reviews/"
        yield (
            "desk",
            {
                "reviews": desk,
                "reviews-second": f"{desk}?view=second",
                "reviews-closed": f"{desk}?view=closed",
                "review-no-dedup": f"{desk}{mail.id}/",
                "review-window-passed": f"{desk}{late.id}/",
                "review-window-open": f"{desk}{differs.id}/",
                "review-found": f"{desk}{since.id}/",
                "review-found-closed": f"{desk}{answered.id}/",
                "review-found-twice": f"{desk}{twice.id}/",
                "review-not-found": f"{desk}{absent.id}/",
                "review-in-flight": f"{desk}{flying.id}/",
                "review-orphan": f"{desk}{orphan.id}/",
                "review-proposed": f"{desk}{proposed.id}/",
                "second-review-proposed": f"{desk}{proposed.id}/",
                "second-reviews": desk,
                "review-closed": f"{desk}{closed.id}/",
            },
        )

    def many(self) -> Pages:
        """More than a page holds, with references as long as receivers make them."""
        workspace = self.scenes.company.workspace
        crm = workspace.receivers.get(name="crm")
        for n in range(58):
            number = f"off_{n:06}" if n % 4 else f"urn:crm:offer:{n:06}:" + "0123456789abcdef" * 3
            made = Review.objects.create(
                workspace=workspace,
                receiver=crm,
                provider_object=number,
                reason=ReviewReason.ORPHAN,
                sentence=f"crm has {number}, which bears the id of an effect of this workspace that has no row.",
            )
            Review.objects.filter(id=made.id).update(opened_at=Now() - timedelta(minutes=37 * n))
        yield "many", {"reviews": f"{self.here}/reviews/"}

    def settle(self, review: Review, outcome: ReviewOutcome, evidence: str = "") -> None:
        settle_review.settle_review(
            self.scenes.company.actor("releaser"),
            review.id,
            outcome=outcome,
            reason="I called Frau Brückner: she has had it since this morning."
            if outcome == ReviewOutcome.DONE
            else "I looked in crm under the customer and under the subject: there is no such offer.",
            evidence=evidence,
            token=self.token(),
        )

    def orphan(self) -> Review:
        """What a scan leaves that has found something."""
        workspace = self.scenes.company.workspace
        crm = workspace.receivers.get(name="crm")
        for n, found in enumerate((1, 0)):
            scan = OrphanScan.objects.create(
                workspace=workspace,
                receiver=crm,
                effect_type="crm.create_offer",
                since=crm.created_at - timedelta(days=30 - n),
                asked_by=self.scenes.company.actor("releaser").user,
                token=self.token(),
            )
            OrphanScan.objects.filter(id=scan.id).update(
                status=ScanStatus.DONE, looked_at=1_284, found=found, ended_at=Now()
            )
        return Review.objects.create(
            workspace=workspace,
            receiver=crm,
            provider_object="off_000916",
            reason=ReviewReason.ORPHAN,
            sentence="crm has off_000916, which bears the id of an effect of this workspace that has no row.",
        )

    # -- bulk recover ----------------------------------------------------------------------------------------------

    def recover(self) -> Pages:
        page = f"{self.here}/recover/"
        yield "nothing-chosen", {"recover": f"{page}?receiver=mail&sub_state=held"}
        yield "unreadable", {"recover": f"{page}?status=later"}
        for _ in range(3):
            self.scenes.held()
        for _ in range(2):
            self.scenes.refused()
        self.scenes.window_passed()
        self.scenes.no_dedup()
        self.scenes.no_dedup()
        yield "dry-run", {"recover": page}
        yield "all-left-alone", {"recover": f"{page}?receiver=mail"}
        found = self.begin({})
        while bulk_recover.work() and found.items.filter(state="waiting").count() > 2:
            Recovery.objects.filter(id=found.id).update(next_at=Now())
        at = f"{self.here}/recoveries/{found.id}/"
        yield "running", {"recovery": at}
        bulk_recover.stop(self.scenes.company.actor("releaser"), found.id)
        yield "stopped", {"recovery": at}
        self.scenes.held()
        again = self.begin({"receiver__name": "desk", "sub_state": "held"})
        while Recovery.objects.filter(id=again.id, status="running").exists():
            Recovery.objects.filter(id=again.id).update(next_at=Now())
            bulk_recover.work()
        yield (
            "done",
            {"recovery": f"{self.here}/recoveries/{again.id}/", "recoveries": f"{self.here}/recoveries/"},
        )

    def six(self) -> Pages:
        """One effect of each kind, before it is recovered and after all was done."""
        scenes = replace(self.scenes, customer="cus_000012")
        for make in (
            scenes.window_open,
            scenes.window_passed,
            scenes.no_dedup,
            partial(self.to_be_found, scenes),
            scenes.not_found,
            scenes.in_flight,
            scenes.held,
            scenes.refused,
        ):
            make()
        chosen = {"customer_ref": scenes.customer}
        yield "six-dry-run", {"recover": f"{self.here}/recover/?customer={scenes.customer}"}
        found = self.begin(chosen)
        while Recovery.objects.filter(id=found.id, status="running").exists():
            Recovery.objects.filter(id=found.id).update(next_at=Now())
            bulk_recover.work()
        for item in found.items.select_related("effect"):
            scenes.carry_out(item.effect)
            reconcile.answer_question(item.effect_id)
        yield "six-done", {"recovery": f"{self.here}/recoveries/{found.id}/"}

    def to_be_found(self, scenes: Scenes) -> Effect:
        """Its window has passed, and the receiver has it: nobody has asked yet."""
        effect = scenes.intend("crm.create_offer", OFFER, "create_offer")
        scenes.fault("drop_after_commit")
        return scenes.earlier(scenes.perform(effect), days=7)

    def begin(self, filters: dict[str, str]) -> Recovery:
        actor = self.scenes.company.actor("releaser")
        plan = bulk_recover.dry_run(actor, filters)
        return bulk_recover.start(
            actor,
            filters,
            digest=plan.digest,
            reason="crm and desk were away from 09:10 to 10:05.",
            per_minute=60,
            token=self.token(),
        )

    # -- the kill switch, the contracts ----------------------------------------------------------------------------

    def stops(self) -> Pages:
        page = f"{self.here}/stops/"
        actor = self.scenes.company.actor("releaser")
        self.scenes.intend("crm.create_offer", OFFER, "create_offer")
        self.scenes.intend("desk.open_ticket", TICKET, "open_ticket")
        before = stop_sending.stop_sending(
            actor,
            scope=StopScope.TYPE,
            target="mail.send",
            reason="The footer was wrong.",
            token=self.token(),
        )
        stop_sending.lift_stop(actor, before.id, reason="The footer is right again.", token=self.token())
        stop_sending.stop_sending(
            actor,
            scope=StopScope.RECEIVER,
            target="crm",
            reason="crm books every offer twice since its update of 08:00. Its support is on it.",
            token=self.token(),
        )
        self.scenes.intend("mail.send", MAIL, "mail_offer")
        yield "one", {"stops": page, "home": f"{self.here}/", "effects": f"{self.here}/effects/"}
        stop_sending.stop_sending(
            actor, scope=StopScope.WORKSPACE, reason="Until we know more.", token=self.token()
        )
        yield "two", {"stops": page, "runs": f"{self.here}/runs/"}
        for stop in standing_stops(self.scenes.company.workspace.id):
            stop_sending.lift_stop(actor, stop.id, reason="We know more.", token=self.token())

    def contracts(self) -> Pages:
        workspace = self.scenes.company.workspace
        crm = workspace.receivers.get(name="crm")
        newest = Probe.objects.get(receiver=crm, effect_type="crm.create_offer")
        cases = [
            ("Sent once", "crm has exactly one."),
            (
                "The answer is lost after it was made",
                "Asked, crm has it as off_000007; nothing was sent again.",
            ),
            ("The same key with the same bytes", "crm answered with the first one, off_000007."),
            ("The same key with other bytes", "crm refused it: 422."),
        ]
        Probe(
            receiver=crm,
            account=crm.account,
            effect_type="crm.create_offer",
            contract_version=newest.contract_version,
            passed=True,
            cases=[{"name": name, "title": name, "passed": True, "seen": seen} for name, seen in cases],
            began_at=newest.at,
        ).save(force_insert=True)
        page = f"{self.here}/contracts/"
        yield (
            "now",
            {"contracts": page, "contract": f"{page}crm.create_offer/", "contract-mail": f"{page}mail.send/"},
        )
