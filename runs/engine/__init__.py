"""The only code that knows LangGraph.

Strict msgpack is switched on before LangGraph is imported anywhere: a row in the checkpoint tables must never be able
to import and call a function of its choice.
"""

import os
import sys

os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"
os.environ.setdefault("LANGSMITH_TRACING", "false")

# It reads the switch once, when it is imported.
_read = sys.modules.get("langgraph.checkpoint.serde._msgpack")
if _read is not None and not _read.STRICT_MSGPACK_ENABLED:
    raise ImportError(
        "LangGraph was imported before runs.engine, and so without strict msgpack: a row of the checkpoint tables could "
        "run code. Import runs.engine first, or set LANGGRAPH_STRICT_MSGPACK=true in the environment."
    )
