"""The demo as a Django app: installed by SIGNALBOX_APPS=demo, and only for its one command."""

from __future__ import annotations

from django.apps import AppConfig


class DemoConfig(AppConfig):
    name = "demo"
