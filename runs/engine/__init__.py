"""The only code that knows LangGraph.

Strict msgpack is switched on before LangGraph is imported anywhere: a row in the checkpoint tables must never be able
to import and call a function of its choice.
"""

import os

os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"
os.environ.setdefault("LANGSMITH_TRACING", "false")
