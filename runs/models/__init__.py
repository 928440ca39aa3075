from runs.models.bulk import BulkContinue, BulkContinueItem
from runs.models.conversation import Conversation, Direction, Message
from runs.models.recording import Recorded, Recording
from runs.models.replay import Asked, BranchEdit, Divergence, StateMigration, TypePermit
from runs.models.run import Checkpoint, Execution, Pause, Run, Step
from runs.models.workflow import SharedPath, WorkflowVersion

__all__ = [
    "Asked",
    "BranchEdit",
    "BulkContinue",
    "BulkContinueItem",
    "Checkpoint",
    "Conversation",
    "Direction",
    "Divergence",
    "Execution",
    "Message",
    "Pause",
    "Recorded",
    "Recording",
    "Run",
    "SharedPath",
    "StateMigration",
    "Step",
    "TypePermit",
    "WorkflowVersion",
]
