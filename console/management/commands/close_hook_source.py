"""`manage.py close_hook_source`: no more webhooks are taken at an address."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.kernel.errors import Refusal
from effects.commands.hook_sources import close_hook_source


class Command(BaseCommand):
    help = "Close an address for webhooks: what comes there is answered 404 from now on. What came stays."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("hook", help="the last part of its address: hook_…")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            source = close_hook_source(options["hook"].rpartition("/")[2])
        except Refusal as refused:
            raise CommandError(str(refused)) from None
        self.stdout.write(f"Closed: {source.id} of {source.receiver.name}.")
