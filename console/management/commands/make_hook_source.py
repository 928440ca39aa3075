"""`manage.py make_hook_source`: an address at which a receiver tells what became of its commands."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from console.kernel.errors import Refusal
from effects.commands.hook_sources import open_hook_source, secret_problem


class Command(BaseCommand):
    help = (
        "Make an address for the webhooks of one receiver of a workspace and print it. They are signed as Standard "
        "Webhooks has it, with a secret that the deployment sets under a name: it is never stored."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("workspace", help="the workspace's slug")
        parser.add_argument("receiver", help="the receiver's name in it, such as crm")
        parser.add_argument(
            "--secret",
            required=True,
            metavar="NAME",
            help="the secret's name: SIGNALBOX_RECEIVER_SECRET_<NAME>, or a file in SIGNALBOX_RECEIVER_SECRETS",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            source = open_hook_source(options["workspace"], options["receiver"], options["secret"])
        except Refusal as refused:
            raise CommandError(str(refused)) from None
        self.stdout.write(settings.ORIGIN + reverse("hook", args=[source.id]))
        if problem := secret_problem(options["secret"]):
            self.stderr.write(f"{problem}. Until it is, every webhook is answered 503.")
