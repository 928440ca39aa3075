from effects.models.approval import Approval, ApprovalDecision
from effects.models.command import Command
from effects.models.effect import Effect, EffectAttempt, EffectRevision, Observation
from effects.models.receiver import Receiver, Standing
from effects.models.review import Review

__all__ = [
    "Approval",
    "ApprovalDecision",
    "Command",
    "Effect",
    "EffectAttempt",
    "EffectRevision",
    "Observation",
    "Receiver",
    "Review",
    "Standing",
]
