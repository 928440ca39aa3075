from runs.models.conversation import Conversation, Direction, Message
from runs.models.recording import Recorded, Recording
from runs.models.run import Checkpoint, Execution, Pause, Run, Step
from runs.models.workflow import WorkflowVersion

__all__ = [
    "Checkpoint",
    "Conversation",
    "Direction",
    "Execution",
    "Message",
    "Pause",
    "Recorded",
    "Recording",
    "Run",
    "Step",
    "WorkflowVersion",
]
