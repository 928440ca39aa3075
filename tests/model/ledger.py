"""The whole machine."""

from __future__ import annotations

from tests.model.ending import Ending
from tests.model.sending import Proposing
from tests.model.telling import Telling


class Ledger(Proposing, Telling, Ending):
    """Every rule there is."""
