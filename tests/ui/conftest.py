from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import override_settings


@pytest.fixture(autouse=True)
def own_addresses() -> Iterator[None]:
    """These tests are about templates and scripts: they know no database and no other page."""
    with override_settings(ROOT_URLCONF="tests.ui.urls"):
        yield
