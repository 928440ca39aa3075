"""The demo's company and its day: made by running the real workflows, once, also when it was broken off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path

import httpx
import pytest
from django.contrib.auth import authenticate
from pytest_django import DjangoDbBlocker

from console.models import AuditEvent, Group, Membership, Role, User
from demo import people, playing
from demo.day import DAY, OFFER, STRANGER, Cancels, Decides, Said, Scene
from demo.receiver.customers import CUSTOMERS
from effects.models import Approval, ApprovalDecision, Effect, EffectAttempt, HookSource, Receiver, Review
from effects.states import Decision, Outcome
from runs.models import Conversation, Execution, Message, Run, WorkflowVersion
from tests.plugin import ROOT
from tests.process import journeys
from tests.stack import Stack, wait_for

PASSWORD = "let everybody in"
RECEIVERS = {"crm": "http://127.0.0.1:1", "desk": "http://127.0.0.1:1", "mail": "smtp://127.0.0.1:2"}

OFFERS_SENT = [
    scene
    for scene in DAY
    if scene.workflow == OFFER and isinstance(scene.act, Decides) and scene.act.decision == Decision.APPROVE
]


def test_the_day_is_one_of_a_real_company() -> None:
    assert len(DAY) == 20
    assert len({scene.key for scene in DAY}) == len({scene.subject for scene in DAY}) == 20
    assert {scene.customer.ref for scene in DAY} - {STRANGER.ref} == {row["id"] for row in CUSTOMERS}
    assert {scene.customer.language for scene in DAY} == {"en", "de", "fr", "es", "nl", "it", "ja"}
    assert {scene.channel for scene in DAY} == {"mail", "chat", "phone"}
    assert all(bool(scene.workflow) == bool(scene.ends) for scene in DAY)
    hanging = [scene for scene in OFFERS_SENT if isinstance(scene.act, Decides) and scene.act.mail_hangs]
    assert len(hanging) == 1
    # The order is for a recipient: another mail to them could take it.
    assert [scene.customer for scene in OFFERS_SENT].count(hanging[0].customer) == 1


@pytest.mark.parametrize(
    ("now", "day"),
    [
        ("2026-06-11 18:00", "2026-06-11"),  # a Thursday evening
        ("2026-06-11 10:00", "2026-06-10"),  # the second message is yet to come
        ("2026-06-13 18:00", "2026-06-12"),  # Saturday
        ("2026-06-15 07:00", "2026-06-12"),  # Monday, before anybody wrote
    ],
)
def test_a_scene_stands_on_the_newest_working_day_that_has_seen_all_of_it(now: str, day: str) -> None:
    scene = Scene("key", STRANGER, "mail", "Subject", (Said(time(9, 15), "one"), Said(time(11, 40), "two")))
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert [one.isoformat(" ")[:16] for one in playing.times_of(scene, at)] == [
        f"{day} 09:15",
        f"{day} 11:40",
    ]


@pytest.mark.django_db
def test_everybody_can_log_in_and_holds_their_role() -> None:
    people.found("northgate", password=PASSWORD, receivers=RECEIVERS)
    roles = {
        one.user.email: one.roles
        for one in Membership.objects.filter(workspace_id="northgate").select_related("user")
    }
    assert {role for held in roles.values() for role in held} == set(Role.values)
    for role in Role.values:
        assert roles[f"{role}@northgate.example"] == [role]
    for email in roles:
        assert authenticate(username=email, password=PASSWORD) is not None, email
    group = Group.objects.get(workspace_id="northgate")
    assert {one.email for one in group.members.all()} == {
        "approver@northgate.example",
        "jonas@northgate.example",
    }


@pytest.mark.django_db
def test_a_second_start_moves_the_receivers_and_keeps_the_greetings_word() -> None:
    people.found("northgate", password=PASSWORD, receivers=RECEIVERS)
    vera = User.objects.get(email="viewer@northgate.example")
    vera.set_password("another one")
    vera.save()
    people.found("northgate", password="a new one", receivers=RECEIVERS | {"crm": "http://127.0.0.1:3"})
    for person in people.PEOPLE:
        assert authenticate(username=f"{person.login}@northgate.example", password="a new one"), person
    crm = Receiver.objects.get(workspace_id="northgate", name="crm")
    assert (crm.base_url, crm.account, crm.secret_name) == ("http://127.0.0.1:3", "northgate-live", "crm")
    assert Receiver.objects.get(workspace_id="northgate", name="mail").secret_name == ""
    assert Receiver.objects.filter(workspace_id="northgate").count() == 3
    # One address for the CRM's webhooks, the same after every start.
    hook = HookSource.objects.get(workspace_id="northgate")
    assert (hook.receiver, hook.secret_name, hook.closed_at) == (crm, "crm-hook", None)


@pytest.mark.django_db
def test_without_a_worker_the_day_says_so() -> None:
    company = people.found("northgate", password=PASSWORD, receivers=RECEIVERS)
    WorkflowVersion.objects.filter(name=OFFER).update(name="another")
    with pytest.raises(playing.NotInTime, match="no worker has brought sales_offer_agent"):
        playing.play_day(company, mail_url="http://127.0.0.1:1", say=lambda _: None, within_s=0)
    assert not Run.objects.filter(workspace=company.workspace).exists()


@dataclass
class Seeded:
    """A company of its own in the stack, and what seed_demo said about its day."""

    stack: Stack
    workspace: str
    lines: str = ""

    @property
    def receiver(self) -> journeys.Receiver:
        return journeys.Receiver(self.stack, f"{self.workspace}-live")

    def begin(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "manage.py", "seed_demo", "--workspace", self.workspace, *options],
            cwd=ROOT,
            env={
                **self.stack.environment,
                "SIGNALBOX_APPS": "demo",
                "DEMO_PASSWORD": PASSWORD,
                "DEMO_SMTP_HOST": "127.0.0.1",
                "DEMO_SMTP_PORT": str(self.stack.smtp_port),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def seed(self, *options: str) -> str:
        process = self.begin(*options)
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0, said
        return said

    def break_off(self, what: str, is_there: Callable[[], bool]) -> None:
        """Play the day until *is_there*, then SIGKILL."""
        playing_it = self.begin("--day")
        wait_for(what, is_there)
        playing_it.send_signal(signal.SIGKILL)
        playing_it.communicate()

    def run_of(self, scene: Scene) -> Run:
        return Run.objects.get(workspace_id=self.workspace, conversation__subject=scene.subject)

    def effect(self, scene: Scene, effect_type: str) -> Effect:
        return Effect.objects.get(run_id=self.run_of(scene).id, effect_type=effect_type)

    def rows(self) -> Counter[str]:
        """How many rows of each kind the company has: what a second playing could add to."""
        runs = Run.objects.filter(workspace_id=self.workspace)
        ids = list(runs.values_list("id", flat=True))
        return Counter(
            people=Membership.objects.filter(workspace_id=self.workspace).count(),
            conversations=Conversation.objects.filter(workspace_id=self.workspace).count(),
            messages=Message.objects.filter(conversation__workspace_id=self.workspace).count(),
            runs=len(ids),
            executions=Execution.objects.filter(run_id__in=ids).count(),
            approvals=Approval.objects.filter(run_id__in=ids).count(),
            decisions=ApprovalDecision.objects.filter(approval__run_id__in=ids).count(),
            effects=Effect.objects.filter(run_id__in=ids).count(),
            attempts=EffectAttempt.objects.filter(effect__run_id__in=ids).count(),
            events=AuditEvent.objects.filter(workspace_id=self.workspace).count(),
            delivered=len(self.receiver.effects()),
        )


@pytest.fixture(scope="module")
def seeded(stack: Stack, django_db_blocker: DjangoDbBlocker) -> Iterator[Seeded]:
    """The day, broken off twice by SIGKILL, among the starts and among the decisions, and then played to its end."""
    workspace = f"seed-{os.getpid()}"
    for name in ("crm", "desk"):
        Path(os.environ["SIGNALBOX_RECEIVER_SECRETS"], name).write_text(f"{workspace}-live:s3cret")
    # The mail that hangs takes its worker with it; the stack goes on with the next one.
    stack.processes["worker"].keep()
    with django_db_blocker.unblock():
        company = Seeded(stack, workspace)
        company.seed()
        runs = Run.objects.filter(workspace_id=workspace)
        decided = ApprovalDecision.objects.filter(approval__workspace_id=workspace)
        company.break_off("three runs to be started", lambda: runs.count() >= 3)
        company.break_off("two decisions", lambda: decided.count() >= 2)
        assert decided.count() < 8
        company.lines = company.seed("--day")
        yield company


@pytest.mark.process
def test_every_conversation_is_there_and_told_of(seeded: Seeded) -> None:
    conversations = {one.subject: one for one in Conversation.objects.filter(workspace_id=seeded.workspace)}
    assert len(conversations) == 20
    for scene in DAY:
        assert seeded.lines.count(repr(scene.subject)) == 1
        inbound = conversations[scene.subject].messages.order_by("at")
        assert [one.text for one in inbound][: len(scene.said)] == [said.text for said in scene.said]


@pytest.mark.process
def test_every_run_came_to_rest_where_the_day_says(seeded: Seeded) -> None:
    runs = {scene.key: seeded.run_of(scene) for scene in DAY if scene.workflow}
    assert {key: run.status for key, run in runs.items()} == {
        scene.key: scene.ends for scene in DAY if scene.workflow
    }
    assert Run.objects.filter(workspace_id=seeded.workspace).count() == len(runs) == 16
    assert Counter(run.status for run in runs.values()) == {
        "completed": 9,
        "waiting_approval": 4,
        "failed": 2,
        "cancelled": 1,
    }
    assert runs["north-quay-tender"].failure == "node_error"
    assert runs["ferrante-20-licenze"].failure == "step_deadline"


@pytest.mark.process
def test_people_decided_as_the_day_says(seeded: Seeded) -> None:
    for scene in DAY:
        decisions = ApprovalDecision.objects.filter(
            approval__run_id__in=Run.objects.filter(
                workspace_id=seeded.workspace, conversation__subject=scene.subject
            ).values("id")
        )
        assert [(one.decision, one.reason, one.by and one.by.email) for one in decisions] == (
            [(scene.act.decision, scene.act.reason, f"{scene.act.by}@{seeded.workspace}.example")]
            if isinstance(scene.act, Decides)
            else []
        ), scene.key
        if isinstance(scene.act, Cancels):
            assert (
                Message.objects.filter(text=scene.act.note, conversation__workspace=seeded.workspace).count()
                == 1
            )


@pytest.mark.process
def test_one_offer_for_each_approved_request_and_nothing_else_was_made(seeded: Seeded) -> None:
    made = Counter(one["external_id"] for one in seeded.receiver.effects())
    offers = [seeded.effect(scene, "crm.create_offer").id for scene in OFFERS_SENT]
    tickets = Effect.objects.filter(
        workspace_id=seeded.workspace, effect_type="desk.open_ticket", status="completed"
    )
    assert len(offers) == 6
    assert made == Counter([*offers, tickets.get().id])


@pytest.mark.process
def test_one_mail_and_one_reply_for_each_completed_offer(seeded: Seeded) -> None:
    completed = [scene for scene in OFFERS_SENT if scene.ends == "completed"]
    assert len(completed) == 5
    for scene in completed:
        mail = seeded.effect(scene, "mail.send")
        assert mail.status == "completed"
        kept = seeded.receiver.mails(scene.customer.email)
        assert len([one for one in kept if mail.id in one["message_id"]]) == 1
        assert Message.objects.filter(run_id=mail.run_id, direction="outbound").count() == 1


@pytest.mark.process
def test_the_mail_that_hung_is_uncertain_and_before_a_person(seeded: Seeded) -> None:
    (scene,) = (scene for scene in OFFERS_SENT if scene.ends == "failed")
    mail = seeded.effect(scene, "mail.send")
    assert (mail.status, mail.sub_state) == ("pending", "uncertain")
    assert [one.outcome for one in mail.attempts.all()] == [Outcome.UNKNOWN]
    assert Review.objects.filter(effect=mail, closed_at=None).count() == 1
    # It did arrive: which nobody at this end can know.
    assert (
        len([one for one in seeded.receiver.mails(scene.customer.email) if mail.id in one["message_id"]]) == 1
    )
    assert httpx.get(f"{seeded.stack.mail}/_faults").json()["faults"] == []


@pytest.mark.process
def test_a_second_playing_adds_nothing(seeded: Seeded) -> None:
    before = seeded.rows()
    said = seeded.seed("--day")
    assert seeded.rows() == before
    assert "20 conversations, 0 of them new" in said
    # The same is told of each, in whatever order they came to rest.
    assert sorted(said.splitlines()[1:]) == sorted(seeded.lines.splitlines()[1:])
