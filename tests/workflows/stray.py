"""A node that asks the outside by itself, in the way that its input says, and takes any refusal for an answer."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable

import httpx
import psycopg
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from runs.authoring import Workflow


class State(TypedDict, total=False):
    way: str
    address: str
    answer: str


def ask(state: State) -> State:
    try:
        return {"answer": WAYS[state["way"]](state["address"])}
    except Exception as error:
        return {"answer": f"caught {type(error).__name__}"}


def _by_http(address: str) -> str:
    return str(httpx.post(address, json={"stray": True}).status_code)


def _by_a_program(address: str) -> str:
    program = f"import urllib.request; urllib.request.urlopen({address!r}, data=b'stray')"
    return str(subprocess.run([sys.executable, "-c", program], check=False).returncode)


def _by_datagram(address: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        return str(out.sendto(b"stray", ("127.0.0.1", 9)))


def _by_name(address: str) -> str:
    return str(socket.getaddrinfo("secret-in-a-name.example", 443))


def _by_database(address: str) -> str:
    return str(psycopg.connect("postgresql://nobody@127.0.0.1:1/elsewhere"))


WAYS: dict[str, Callable[[str], str]] = {
    "http": _by_http,
    "program": _by_a_program,
    "datagram": _by_datagram,
    "name": _by_name,
    "database": _by_database,
    "none": lambda address: "nothing",
}


def after(state: State) -> State:
    return {}


graph = StateGraph(State)
graph.add_node("ask", ask)
graph.add_node("after", after)
graph.add_edge(START, "ask")
graph.add_edge("ask", "after")
graph.add_edge("after", END)

workflow = Workflow(
    name="test_stray",
    version="1",
    schema_version=1,
    graph=graph,
    title="Test stray requests",
    input_schema={
        "type": "object",
        "properties": {"way": {"enum": sorted(WAYS)}, "address": {"type": "string"}},
        "required": ["way", "address"],
        "additionalProperties": False,
    },
)
