"""Try a contract against its receiver, with a harmless object: senders really killed, workers really racing.

The cases are those of the two articles that this product began with. What is judged is what the receiver has, as far
as it can be asked. A probe's effects stand in the ledger like any other's; what they have in place of a run is the
probe's own id. Until a probe has passed, nothing of its type is sent a second time without a person
(effects.selectors.probed).
"""

from __future__ import annotations

from effects.probe.cases import Case
from effects.probe.target import NoHarmless, NoLiveReceiver, NotProbed, Target, target_of
from effects.probe.trial import Trial

__all__ = ["Case", "NoHarmless", "NoLiveReceiver", "NotProbed", "Target", "Trial", "target_of"]
