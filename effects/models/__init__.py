from effects.models.approval import Approval, ApprovalDecision
from effects.models.attachment import Attachment
from effects.models.command import Command
from effects.models.effect import Effect, EffectAttempt, EffectRevision, Observation
from effects.models.hook import HookMessage, HookSource
from effects.models.look import LookRequest
from effects.models.order import Order
from effects.models.probe import Probe
from effects.models.receiver import Receiver, Standing
from effects.models.recovery import Recovery, RecoveryItem
from effects.models.review import Review
from effects.models.scan import LedgerMark, OrphanScan
from effects.models.stop import Stop
from effects.models.would_have import WouldHave

__all__ = [
    "Approval",
    "ApprovalDecision",
    "Attachment",
    "Command",
    "Effect",
    "EffectAttempt",
    "EffectRevision",
    "HookMessage",
    "HookSource",
    "LedgerMark",
    "LookRequest",
    "Observation",
    "Order",
    "OrphanScan",
    "Probe",
    "Receiver",
    "Recovery",
    "RecoveryItem",
    "Review",
    "Standing",
    "Stop",
    "WouldHave",
]
