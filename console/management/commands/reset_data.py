"""`manage.py reset_data`: clear the data folder of `manage.py up`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.folder import FolderUnusable, claimed, looks_like_ours
from console.stack import default_folder


class Command(BaseCommand):
    help = "Delete everything `manage.py up` keeps in its data folder. Refuses while it runs."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--data", type=Path, default=default_folder(), help="the folder (default %(default)s)"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        folder: Path = options["data"].expanduser().absolute()
        if not folder.exists():
            self.stdout.write(f"There are no data in {folder}.")
            return
        # A slip in --data must not cost anyone a folder of something else.
        if not looks_like_ours(folder):
            raise CommandError(f"{folder} is no data folder of Signalbox. Nothing was deleted.")
        try:
            with claimed(folder), claimed(folder, "servers.lock"):
                for entry in os.scandir(folder):
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path)
                    else:
                        os.unlink(entry.path)
            folder.rmdir()
        except FolderUnusable as refusal:
            raise CommandError(str(refusal)) from None
        except OSError as error:
            raise CommandError(f"{error.filename or folder} can't be deleted ({error.strerror}).") from None
        self.stdout.write(f"Cleared {folder}.")
