#!/usr/bin/env python
"""Django's command line for Signalbox."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    if sys.argv[1:2] in (["up"], ["reset_data"]):
        # These make production's secrets themselves, or need none.
        os.environ.setdefault("SIGNALBOX_ENV", "development")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
