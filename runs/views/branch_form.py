"""The form of Create branch: a field for each field of the state, or the whole state as JSON.

What is edited is what differs from what was shown. A protected value is never shown; it can only be replaced whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from console.kernel.canonical import JSONValue, parse_json
from console.kernel.errors import Invalid, Refusal
from console.kernel.masking import is_masked
from runs.availability import Offer
from runs.commands.branch import COMMANDS, Editable, StateField
from runs.commands.replay import LONGEST_REASON
from runs.states import RunMode

FIELDS, JSON = "fields", "json"
RECORDED, ASKED = "recorded", "asked"
#: A page holds so many messages of a list, the newest; the others are edited as JSON.
MAX_MESSAGES = 60
_LONG = 60
_ROLES = [("user", "user"), ("assistant", "assistant"), ("system", "system")]


@dataclass(frozen=True)
class MessageRow:
    """One message of a list: its content can be changed, or it can be removed."""

    id: str
    role: str
    shown: str
    content: forms.BoundField | None
    remove: forms.BoundField | None


@dataclass(frozen=True)
class StateRow:
    """One field of the state on the page. *now* is its value as people may see it, where it has no input of its own."""

    field: StateField
    value: forms.BoundField | None
    replace: forms.BoundField | None = None
    append: forms.BoundField | None = None
    role: forms.BoundField | None = None
    messages: Sequence[MessageRow] = ()
    earlier: int = 0
    now: JSONValue = None


class BranchForm(forms.Form):
    """What is typed to make a branch. *values*: the state as it is shown, with markers for what is protected."""

    view = forms.ChoiceField(choices=[(FIELDS, FIELDS), (JSON, JSON)], widget=forms.HiddenInput)
    reason = forms.CharField(
        max_length=LONGEST_REASON,
        label="Reason",
        help_text="It stands on the new run, in the lineage and in the audit.",
        error_messages={"required": "Say why: a branch is made for a reason."},
        widget=forms.TextInput(attrs={"autocomplete": "off", "maxlength": LONGEST_REASON}),
    )
    mode = forms.ChoiceField(
        label="Mode",
        choices=[(one.value, one.label) for one in (RunMode.SIMULATION, RunMode.LIVE)],
        initial=RunMode.SIMULATION.value,
    )
    models = forms.ChoiceField(
        required=False,
        label="Models of a simulation",
        choices=[(RECORDED, "Recorded answers"), (ASKED, "Asked live")],
        initial=RECORDED,
        help_text="Recorded answers fit only requests that the edit leaves the same; another request stops the run.",
    )

    def __init__(
        self,
        editable: Editable,
        values: Mapping[str, JSONValue],
        offers: Mapping[str, Offer],
        data: QueryDict | None = None,
        *,
        view: str = FIELDS,
    ) -> None:
        super().__init__(data, initial={"view": view})
        self.editable = editable
        self.values = values
        self.offers = offers
        if len(editable.nodes) > 1:
            self.fields["as_node"] = forms.ChoiceField(
                label="Counts as the output of",
                choices=[("", "Choose…"), *((node, node) for node in editable.nodes)],
                error_messages={"required": "Say whose output the edit counts as."},
                help_text=f"{', '.join(editable.nodes)} ran side by side. The edges and choices of the one that you name "
                "run again on the edited state; each other keeps its way.",
            )
        self.look = (data.get("view") if data is not None else view) or FIELDS
        self._messages: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
        if self.look == JSON:
            self.fields["state"] = forms.CharField(
                strip=False,
                label="State",
                initial=_text_of(dict(values)),
                help_text="Each field that differs from what stands here now is replaced whole, past its reducer.",
                widget=forms.Textarea(attrs={"rows": 28, "spellcheck": "false", "class": "mono"}),
            )
        else:
            for one in editable.fields.values():
                self._add(one)

    # -- the fields of the state ---------------------------------------------------------------------------------

    def _add(self, one: StateField) -> None:
        name, now = one.name, self.values.get(one.name)
        if one.joins == "messages" and isinstance(now, list):
            self._add_messages(one, now)
            return
        if not self._shows(name):
            self.fields[f"replace.{name}"] = forms.BooleanField(
                required=False, label="Replace the whole field" if name in self.values else "Set this field"
            )
        self.fields[f"value.{name}"] = _input_of(one, now, shown=self._shows(name))
        if one.joins:
            self.fields[f"append.{name}"] = _json_field("Append", rows=2)

    def _add_messages(self, one: StateField, now: list[Any]) -> None:
        found: list[tuple[int, Mapping[str, Any]]] = [
            (n, message) for n, message in enumerate(now) if isinstance(message, dict)
        ]
        self._messages[one.name] = found[-MAX_MESSAGES:]
        for n, message in self._messages[one.name]:
            content = message.get("content")
            if isinstance(content, str) and message.get("id"):
                self.fields[f"message.{one.name}.{n}"] = _text_field("Content", content, rows=3)
            elif is_masked(content) and message.get("id"):
                self.fields[f"message.{one.name}.{n}"] = _text_field(
                    "New content (it is protected)", "", rows=2
                )
            if message.get("id"):
                self.fields[f"remove.{one.name}.{n}"] = forms.BooleanField(required=False, label="Remove")
        self.fields[f"role.{one.name}"] = forms.ChoiceField(
            required=False, choices=_ROLES, label="Append a message from"
        )
        self.fields[f"value.{one.name}"] = _text_field("Its content", "", rows=3)

    def _shows(self, name: str) -> bool:
        return name in self.values and not _holds_mask(self.values[name])

    @property
    def rows(self) -> list[StateRow]:
        return [self._row(one) for one in self.editable.fields.values()] if self.look == FIELDS else []

    def _row(self, one: StateField) -> StateRow:
        name = one.name
        messages = [
            MessageRow(
                str(message.get("id") or ""),
                str(message.get("role") or ""),
                "" if self._bound(f"message.{name}.{n}") else _text_of(message),
                self._bound(f"message.{name}.{n}"),
                self._bound(f"remove.{name}.{n}"),
            )
            for n, message in self._messages.get(name, [])
        ]
        shown = self.values.get(name)
        return StateRow(
            field=one,
            value=self._bound(f"value.{name}"),
            replace=self._bound(f"replace.{name}"),
            append=self._bound(f"append.{name}"),
            role=self._bound(f"role.{name}"),
            messages=messages,
            earlier=len(shown) - len(messages) if isinstance(shown, list) and messages else 0,
            now=shown,
        )

    def _bound(self, name: str) -> forms.BoundField | None:
        return self[name] if name in self.fields else None

    # -- what was typed -------------------------------------------------------------------------------------------

    def clean_mode(self) -> str:
        """A mode that is not offered stands there with its reason; it is refused here as by the command."""
        mode = RunMode(self.cleaned_data["mode"])
        if reason := self.offers[COMMANDS[mode]].reason:
            raise forms.ValidationError(f"Not possible: {reason}.")
        return mode.value

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        self.edit = self._edit_of_json() if self.look == JSON else self._edit_of_fields()
        if not self.edit and not self.errors:
            self.add_error(None, "Nothing is edited yet: change a field of the state.")
        return cleaned

    def _edit_of_fields(self) -> dict[str, dict[str, JSONValue]]:
        found = {}
        for one in self.editable.fields.values():
            ways = self._messages_typed(one) if one.name in self._messages else self._typed(one)
            if ways:
                found[one.name] = ways
        return found

    def _typed(self, one: StateField) -> dict[str, JSONValue]:
        name = one.name
        try:
            if f"replace.{name}" in self.fields:
                wanted = bool(self.cleaned_data.get(f"replace.{name}"))
            else:
                wanted = self._differs(f"value.{name}")
            ways: dict[str, JSONValue] = {"replace": self._value(one)} if wanted else {}
            if text := str(self.cleaned_data.get(f"append.{name}") or "").strip():
                if ways:
                    raise Invalid("Either replace the field or append to it.")
                return {"append": parse_json(text)}
        except Refusal as refusal:
            self.add_error(f"value.{name}", refusal.message)
            return {}
        if f"replace.{name}" in self.fields and not wanted and self.cleaned_data.get(f"value.{name}"):
            self.add_error(f"value.{name}", "To use this, tick that the field is to be replaced.")
        return ways

    def _differs(self, key: str) -> bool:
        return _lines(self.cleaned_data.get(key)) != _lines(self.fields[key].initial)

    def _value(self, one: StateField) -> JSONValue:
        """What was typed, as the kind of value that the field has. Raises Refusal for what is no JSON."""
        text = _lines(self.cleaned_data.get(f"value.{one.name}"))
        if _is_text(one, self.values.get(one.name)):
            return text
        if not text.strip():
            raise Invalid('Nothing is typed. For an empty text write "", for nothing at all null.')
        return parse_json(text)

    def _messages_typed(self, one: StateField) -> dict[str, JSONValue]:
        edits: dict[str, JSONValue] = {}
        removed: list[JSONValue] = []
        for n, message in self._messages[one.name]:
            key = f"message.{one.name}.{n}"
            if self.cleaned_data.get(f"remove.{one.name}.{n}"):
                removed.append(str(message["id"]))
            elif key in self.fields and self._differs(key):
                edits[str(message["id"])] = _lines(self.cleaned_data.get(key))
        ways: dict[str, JSONValue] = {}
        if edits:
            ways["edit"] = edits
        if removed:
            ways["remove"] = removed
        if text := _lines(self.cleaned_data.get(f"value.{one.name}")):
            ways["append"] = [{"role": self.cleaned_data.get(f"role.{one.name}") or "user", "content": text}]
        return ways

    def _edit_of_json(self) -> dict[str, dict[str, JSONValue]]:
        text = str(self.cleaned_data.get("state") or "")
        if not text.strip():
            return {}
        try:
            typed = parse_json(text)
            if not isinstance(typed, dict):
                raise Invalid("The state is an object: { … }.")
            if gone := sorted(set(self.values) - set(typed)):
                raise Invalid(
                    f"A field can't be taken out of the state: {', '.join(gone)}. Set it to null instead."
                )
            changed = {
                name: value
                for name, value in typed.items()
                if name not in self.values or not _same(value, self.values[name])
            }
            if masked := sorted(name for name, value in changed.items() if _holds_mask(value)):
                raise Invalid(
                    f"{', '.join(masked)} holds a protected value: it can only be replaced whole, without the mark."
                )
        except Refusal as refusal:
            self.add_error("state", refusal.message)
            return {}
        return {name: {"replace": value} for name, value in changed.items()}

    def refuse(self, refusal: Refusal) -> None:
        """Put a refusal beside the field that it is about; what belongs to none stands on top."""
        several = refusal.errors if isinstance(refusal, Invalid) else []
        for path, message in several or [(refusal.field or "", refusal.message)]:
            name = re.split(r"[.\[]", path, maxsplit=1)[0]
            beside = [f"value.{name}", name, *(["state"] if self.look == JSON and name else [])]
            key = next((key for key in beside if key in self.fields), None)
            is_its_own = path == name and key in (f"value.{name}", name)
            self.add_error(key, message if not several or is_its_own else f"{path}: {message}")

    @property
    def chosen_mode(self) -> RunMode:
        return RunMode(self.cleaned_data["mode"])

    @property
    def models_asked(self) -> bool:
        return bool(self.cleaned_data.get("models") == ASKED)

    @property
    def chosen_node(self) -> str:
        return str(self.cleaned_data.get("as_node") or "")


def _is_text(one: StateField, now: JSONValue) -> bool:
    if isinstance(now, str):
        return True
    if is_masked(now) and isinstance(now, dict):
        return now.get("kind") == "text"
    return now is None and one.schema.get("type") == "string"


def _input_of(one: StateField, now: JSONValue, *, shown: bool) -> forms.Field:
    """The input for a field as it stands: a text, a number, yes or no, or JSON for what has parts."""
    label = "Value" if shown else "New value"
    if _is_text(one, now):
        return _text_field(label, now if shown and isinstance(now, str) else "", rows=2 if not shown else 0)
    if shown and isinstance(now, bool):
        return forms.ChoiceField(
            required=False,
            label=label,
            choices=[("true", "true"), ("false", "false")],
            initial=json.dumps(now),
        )
    if shown and isinstance(now, int | float):
        widget = forms.TextInput(attrs={"inputmode": "decimal", "class": "mono", "autocomplete": "off"})
        return forms.CharField(required=False, label=label, initial=json.dumps(now), widget=widget)
    text = _text_of(now) if shown else ""
    return _json_field(f"{label}, as JSON", initial=text, rows=min(18, max(3, text.count("\n") + 2)))


def _text_field(label: str, initial: str, *, rows: int = 0) -> forms.CharField:
    """On one line where it is short; what is typed stays as it is, blanks and all."""
    several = rows or ("\n" in initial or "\r" in initial or len(initial) > _LONG)
    lines = rows or min(14, max(3, initial.count("\n") + len(initial) // 80 + 2))
    widget: forms.Widget = (
        forms.Textarea(attrs={"rows": lines, "dir": "auto"})
        if several
        else forms.TextInput(attrs={"dir": "auto", "autocomplete": "off"})
    )
    return forms.CharField(required=False, strip=False, label=label, initial=initial, widget=widget)


def _json_field(label: str, *, initial: str = "", rows: int) -> forms.CharField:
    widget = forms.Textarea(attrs={"rows": rows, "spellcheck": "false", "class": "mono"})
    return forms.CharField(required=False, strip=False, label=label, initial=initial, widget=widget)


def _text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _lines(value: Any) -> str:
    """A browser sends every line end as CR LF: by that alone nothing is edited."""
    return str(value if value is not None else "").replace("\r\n", "\n").replace("\r", "\n")


def _same(one: JSONValue, other: JSONValue) -> bool:
    """Equal, and of one kind: 1, 1.0 and true are three."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _holds_mask(value: JSONValue) -> bool:
    if is_masked(value):
        return True
    if isinstance(value, dict):
        return any(_holds_mask(part) for part in value.values())
    return isinstance(value, list) and any(_holds_mask(part) for part in value)
