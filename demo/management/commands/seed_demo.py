"""`manage.py seed_demo`: the demo's company; with --day, a working day of it."""

from __future__ import annotations

from typing import Any

import httpx
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from console import database, env
from demo import people, playing
from demo.day import DAY


class Command(BaseCommand):
    help = (
        "Make the demo's workspace, people, receivers and conversations, as far as they are not there. With --day, "
        "also run the workflows of a working day, and decide as the people would: needs a worker, a sweep and the "
        "demo's processes, and takes about a minute. Everything is made once, however often this is run."
    )
    requires_system_checks: list[str] = []  # every process of the product makes them

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--day", action="store_true", help="run the workflows of the day too")
        parser.add_argument("--workspace", default="acme", help="the workspace's id (default %(default)s)")

    def handle(self, *_args: Any, **options: Any) -> None:
        database.require()
        company = people.found(
            options["workspace"], password=env.text("DEMO_PASSWORD"), receivers=receivers()
        )
        made = playing.open_conversations(company)
        self.stdout.write(
            f"{company.workspace.name} ({company.workspace.id}): {len(people.PEOPLE)} people, "
            f"{len(DAY)} conversations, {made} of them new"
        )
        hook = people.listen(company.workspace, "crm")
        self.stdout.write(f"webhooks of the CRM: {settings.ORIGIN}{reverse('hook', args=[hook.id])}")
        if options["day"]:
            self._play(company)

    def _play(self, company: people.Company) -> None:
        try:
            plays = playing.play_day(company, mail_url=env.text("DEMO_MAIL_URL"), say=self.stdout.write)
        except playing.NotInTime as problem:
            raise CommandError(str(problem)) from None
        except httpx.HTTPError as problem:
            raise CommandError(
                f"the mail catcher at DEMO_MAIL_URL can't be told what to do: {problem}"
            ) from None
        wrong = [play for play in plays if play.fresh and play.run.status != play.scene.ends]
        if wrong:
            raise CommandError(
                "not as the day is written: "
                + ", ".join(f"{play.run.id} is {play.run.status}, not {play.scene.ends}" for play in wrong)
            )


def receivers() -> dict[str, str]:
    """Where the demo's receivers are, by the names that the demo's contracts give them."""
    return {
        "crm": env.text("DEMO_RECEIVER_URL"),
        "desk": env.text("DEMO_RECEIVER_URL"),
        "mail": f"smtp://{env.text('DEMO_SMTP_HOST')}:{env.text('DEMO_SMTP_PORT')}",
    }
