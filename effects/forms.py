"""The forms of the ledger's pages: filters, decisions, orders, and a form made from a JSON schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.db.models import Q

from console import bulk
from console.kernel.canonical import JSONValue, parse_json
from console.kernel.errors import BadRequest, Invalid, Refusal
from console.pages import LeverForm
from effects.contracts import contracts
from effects.states import EffectStatus, ReviewOutcome, ReviewReason, StopScope, SubState

#: Longer values than this get several lines to be read and edited in.
ONE_LINE = 80
LONGEST_REASON = 2000
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: One word, and no wildcard or control character: what an id, a reference or a name of ours is made of.
_FORM_TOKEN = re.compile(r"[0-9a-f]{32}")

Schema = Mapping[str, Any]


class DecisionForm(forms.Form):
    """What a person had before them when they decided (hash and version), the form's token, and their reason."""

    payload_hash = forms.CharField(max_length=80)
    version = forms.IntegerField(min_value=1)
    token = forms.RegexField(_FORM_TOKEN)
    reason = forms.CharField(
        required=False,
        max_length=LONGEST_REASON,
        widget=forms.Textarea(attrs={"rows": 2, "maxlength": LONGEST_REASON}),
        error_messages={"max_length": "Say it in at most %(limit_value)d characters."},
    )

    def must_say(self) -> None:
        """Show the reason as what it is here: the words in which the second person, too, accepts the risk."""
        self.fields["reason"].required = True
        self.fields["reason"].label = "In your own words, that you accept the risk of a second one"

    def check_carried(self) -> None:
        """BadRequest where the fields that the page itself writes are missing or malformed: nobody typed those."""
        self.is_valid()
        if broken := {"payload_hash", "version", "token"} & set(self.errors):
            raise BadRequest(
                "This form did not come from the approval's page. Open the page and decide there.",
                field=sorted(broken)[0],
            )


def _words(label: str, missing: str, rows: int = 2) -> forms.CharField:
    """A text that a person has to write in words of their own."""
    return forms.CharField(
        label=label,
        max_length=LONGEST_REASON,
        widget=forms.Textarea(attrs={"rows": rows, "maxlength": LONGEST_REASON}),
        error_messages={
            "required": missing,
            "max_length": "Say it in at most %(limit_value)d characters.",
        },
    )


class OrderForm(LeverForm):
    """An order about an effect. *seen* names what the person was told it would do when they wrote it.

    *overrides*: nothing proves that the receiver does not have it, so they type its id and accept a second one.
    What it carries unseen is the page's to write, fresh each time it is shown; what was typed stays.
    """

    seen = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)
    reason = _words("Reason", "Say why.")
    typed_id = forms.CharField(
        label="Type the effect's id",
        max_length=60,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "class": "mono"}),
        error_messages={
            "required": "Type the effect's id, exactly: it is the one that may come to exist twice."
        },
    )
    accepts = _words(
        "Accept a second one, in your own words",
        "Say in your own words that you accept the risk of a second one.",
    )

    def __init__(self, data: Any = None, *, name: str, overrides: bool = False) -> None:
        super().__init__(data, auto_id=f"{name}_%s")
        if not overrides:
            del self.fields["typed_id"], self.fields["accepts"]

    def text(self, name: str) -> str:
        """What was typed there; empty where it could not be read or is not asked. Only after is_valid()."""
        return str(self.cleaned_data.get(name, ""))

    @property
    def typed(self) -> list[str]:
        """What a person wrote into it, to be kept on the page when the act is no longer offered."""
        return [text for name in ("reason", "accepts") if (text := str(self.data.get(name, "")).strip())]

    def refuse(self, refusal: Refusal) -> None:
        """Put a refusal beside the field that it names, where it stands here."""
        if refusal.field in self.fields and refusal.field not in self.errors:
            self.add_error(refusal.field, refusal.message)


class WithdrawForm(LeverForm):
    """Why an order is taken back."""

    reason = _words("Why you withdraw it", "Say why you withdraw it.")

    def __init__(self, data: Any = None, *, order_id: str) -> None:
        super().__init__(data, auto_id=f"withdraw_{order_id}_%s")


class RefusableForm(LeverForm):
    """A form of a few words, that shows a refusal beside the field that it names."""

    def text(self, name: str) -> str:
        """What was typed there; empty where it could not be read. Only after is_valid()."""
        return str(self.cleaned_data.get(name, ""))

    def refuse(self, refusal: Refusal) -> bool:
        """Put a refusal beside its field. False: it names none that stands here."""
        if refusal.field not in self.fields:
            return False
        if refusal.field not in self.errors:
            self.add_error(refusal.field, refusal.message)
        return True

    @property
    def typed(self) -> list[str]:
        """What a person wrote into it, to be kept on the page when it is no longer offered."""
        return [text for name in ("evidence", "reason") if (text := str(self.data.get(name, "")).strip())]


class SettleForm(RefusableForm):
    """One way to settle a review. *name*: the outcome's code; evidence is asked for where something was done."""

    evidence = forms.CharField(
        label="The receiver's own reference of it",
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "class": "mono"}),
        error_messages={"required": "Give the receiver's own reference of it."},
    )
    reason = _words("What you found out, and how", "Say what you found out, and how.")

    def __init__(self, data: Any = None, *, name: str) -> None:
        super().__init__(data, auto_id=f"{name}_%s")
        self.name = name
        if name != ReviewOutcome.DONE:
            del self.fields["evidence"]


class DeclineForm(LeverForm):
    """Why the second person does not agree."""

    reason = _words("Why you do not agree", "Say why you do not agree.")

    def __init__(self, data: Any = None) -> None:
        super().__init__(data, auto_id="decline_%s")


class StopForm(RefusableForm):
    """What is to be stopped, and why. The safest choice is none: nothing is preselected."""

    target = forms.ChoiceField(
        label="What is not to be sent", error_messages={"required": "Choose what to stop."}
    )
    reason = _words("Why", "Say why.")

    def __init__(self, data: Any = None, *, targets: Sequence[tuple[str, str]]) -> None:
        super().__init__(data, auto_id="stop_%s")
        self.fields["target"].choices = [("", "Choose…"), *targets]  # type: ignore[attr-defined]

    def chosen(self) -> tuple[StopScope, str]:
        """The scope and its target. Raises Invalid where none was chosen."""
        scope, _, target = self.text("target").partition(":")
        if scope not in StopScope.values:
            raise Invalid("Choose what to stop.", field="target")
        return StopScope(scope), target


class LiftForm(LeverForm):
    """Why sending may go on."""

    reason = _words("Why sending may go on", "Say why sending may go on.")

    def __init__(self, data: Any = None, *, stop_id: str) -> None:
        super().__init__(data, auto_id=f"lift_{stop_id}_%s")


class BulkForm(RefusableForm):
    """Why, and how fast. What it was shown for is the page's to carry. *many*: what it takes, in words."""

    digest = forms.CharField(max_length=64, widget=forms.HiddenInput)
    per_minute = forms.IntegerField(
        initial=60, widget=forms.NumberInput(attrs={"min": 1, "max": bulk.FASTEST})
    )
    reason = _words("Why", "Say why.")

    def __init__(self, data: Any = None, *, many: str) -> None:
        super().__init__(data, auto_id="bulk_%s")
        self.fields["per_minute"].label = f"{many} a minute, at most"

    def asked(self, token: str) -> bulk.Form:
        """What was typed, as far as it could be read: whether it will do is the command's to say."""
        self.is_valid()
        per_minute = self.cleaned_data.get("per_minute") or 0
        return bulk.Form(self.text("digest"), self.text("reason"), per_minute, token)


def _choice_filter(label: str, choices: Sequence[tuple[str, str]] = ()) -> forms.ChoiceField:
    """One of some values, or any: an address that names another one is told so in words."""
    no_such = {"invalid_choice": "there is no “%(value)s” here."}
    return forms.ChoiceField(required=False, label=label, choices=choices, error_messages=no_such)


class ReviewFilter(forms.Form):
    """The filters of the Review desk; its address is the view."""

    reason = _choice_filter("Reason", [("", "Any reason"), *ReviewReason.choices])
    receiver = _choice_filter("Receiver")

    def __init__(self, data: Any, *, receivers: list[str]) -> None:
        super().__init__(data)
        self.fields["receiver"].choices = [  # type: ignore[attr-defined]
            ("", "All receivers"),
            *((name, name) for name in receivers),
        ]

    def conditions(self) -> Q:
        """What the filters that are set ask of a review; an orphan names its receiver itself. Only after is_valid()."""
        wanted = Q()
        if reason := self.cleaned_data["reason"]:
            wanted &= Q(reason=reason)
        if name := self.cleaned_data["receiver"]:
            wanted &= Q(effect__receiver__name=name) | Q(receiver__name=name)
        return wanted


class ScanForm(RefusableForm):
    """Which receiver is to be scanned for orphans, and how far back."""

    receiver = forms.ChoiceField(label="Receiver", error_messages={"required": "Choose a receiver."})
    since = forms.DateTimeField(
        label="Made since, UTC",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        error_messages={"invalid": "Write a date and a time."},
    )

    def __init__(self, data: Any = None, *, receivers: Sequence[tuple[str, str]]) -> None:
        super().__init__(data, auto_id="scan_%s")
        self.fields["receiver"].choices = [("", "Choose…"), *receivers]  # type: ignore[attr-defined]


class SchemaForm(forms.Form):
    """A form with one field for each property of a JSON schema; :meth:`value` gives the typed JSON object back.

    Texts, whole numbers, numbers, flags and enumerations get controls of their own; anything else is edited as JSON.
    The form reads types; whether the object fits the schema is the command's to say, and :meth:`refuse` puts its
    answer beside the fields.
    """

    def __init__(
        self,
        schema: Schema,
        data: Any = None,
        *,
        given: Mapping[str, JSONValue] | None = None,
        only: frozenset[str] | None = None,
        prefix: str = "arg",
    ) -> None:
        super().__init__(data, prefix=prefix)
        self._property: dict[str, str] = {}
        given = given or {}
        required = set(schema.get("required", ()))
        for n, (name, rule) in enumerate(_properties(schema, given).items()):
            if only is None or name in only:
                key = name if _PLAIN_NAME.fullmatch(name) else f"property_{n}"
                self._property[key] = name
                self.fields[key] = _field(name, rule, given.get(name), required=name in required)

    def value(self) -> dict[str, JSONValue]:
        """The object as typed. Optional fields that were left empty are left out. Only after is_valid()."""
        return {
            self._property[key]: value for key, value in self.cleaned_data.items() if value is not _LEFT_OUT
        }

    def refuse(self, refusal: Refusal) -> None:
        """Put a refusal beside the fields it names; what names none stands above the form."""
        errors = refusal.errors if isinstance(refusal, Invalid) and refusal.errors else []
        for path, message in errors or [(refusal.field or "", refusal.message)]:
            self.add_error(self._named(path), message)

    def _named(self, path: str) -> str | None:
        head = re.split(r"[.\[]", path, maxsplit=1)[0]
        return next((key for key, name in self._property.items() if name == head), None)


class JsonForm(forms.Form):
    """The same object as raw JSON, for what a schema's form cannot say."""

    json = forms.CharField(
        label="The whole object as JSON",
        widget=forms.Textarea(attrs={"rows": 10, "class": "mono", "spellcheck": "false"}),
    )

    def clean_json(self) -> dict[str, JSONValue]:
        value = _parsed(self.cleaned_data["json"])
        if not isinstance(value, dict):
            raise forms.ValidationError("Write an object: { … }")
        return value

    def value(self) -> dict[str, JSONValue]:
        value: dict[str, JSONValue] = self.cleaned_data["json"]
        return value

    def refuse(self, refusal: Refusal) -> None:
        self.add_error("json", refusal.message)


class AnswerForm(forms.Form):
    """The answer to a question whose schema is not an object: a text, or one typed value."""

    def __init__(self, schema: Schema | None, data: Any = None, *, prefix: str = "arg") -> None:
        super().__init__(data, prefix=prefix)
        rule = {"type": "string", "x-multiline": True, **(schema or {})}
        self.fields["answer"] = _field("answer", rule, None, required=True)
        self.fields["answer"].label = str(rule.get("title") or "Your answer")

    def value(self) -> JSONValue:
        answer: JSONValue = self.cleaned_data["answer"]
        return answer

    def refuse(self, refusal: Refusal) -> None:
        self.add_error("answer", refusal.message)


def answer_form(schema: Schema | None, data: Any = None) -> SchemaForm | AnswerForm:
    """The form of an answer: fields for an object's properties, else one field; without a schema a text box."""
    if schema and schema.get("type") == "object" and schema.get("properties"):
        return SchemaForm(schema, data)
    return AnswerForm(schema, data)


class _LeftOut:
    """Stands for an optional property that was left empty; None would be JSON's null."""


_LEFT_OUT = _LeftOut()


def _properties(schema: Schema, given: Mapping[str, JSONValue]) -> dict[str, Schema]:
    """The schema's properties, then the given ones it does not speak of, typed by their values."""
    found: dict[str, Schema] = dict(schema.get("properties", {}))
    for name, value in given.items():
        found.setdefault(name, {"type": _type_of(value)})
    return found


def _type_of(value: JSONValue) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _field(name: str, rule: Schema, given: JSONValue, *, required: bool) -> forms.Field:
    shared: dict[str, Any] = {
        "label": str(rule.get("title") or name.replace("_", " ").capitalize()),
        "help_text": str(rule.get("description") or ""),
        "initial": given,
    }
    if "enum" in rule:
        return _ChoiceOfJson(rule["enum"], required=required, **shared)
    kind = rule.get("type")
    if kind == "boolean":
        return forms.BooleanField(required=False, **shared)
    if kind == "string":
        return _Text(
            rule, long=_is_long(rule, given), required=required and given != "", kept=given == "", **shared
        )
    if kind in ("integer", "number"):
        return _Number(
            whole=kind == "integer", stays_float=isinstance(given, float), required=required, **shared
        )
    return _Json(required=required, **shared)


def _is_long(rule: Schema, given: JSONValue) -> bool:
    text = given if isinstance(given, str) else ""
    return (
        bool(rule.get("x-multiline"))
        or rule.get("maxLength", 0) > 500
        or len(text) > ONE_LINE
        or "\n" in text
    )


class _Text(forms.CharField):
    """A text as it is typed: nothing stripped, and the browser's CRLF is one line end again.

    *kept*: an empty one is a value; otherwise it means that the property is left out.
    """

    def __init__(self, rule: Schema, *, long: bool, kept: bool, **options: Any) -> None:
        rows = min(14, max(4, str(options.get("initial") or "").count("\n") + 2))
        widget = forms.Textarea(attrs={"rows": rows}) if long else forms.TextInput()
        super().__init__(strip=False, widget=widget, **options)
        self._kept = kept
        if "maxLength" in rule:
            widget.attrs["maxlength"] = rule["maxLength"]

    def clean(self, value: Any) -> Any:
        text = str(super().clean(value)).replace("\r\n", "\n")
        return text if text or self._kept else _LEFT_OUT


class _Number(forms.CharField):
    """A number by its JSON spelling, so that 12 stays whole and nothing is rounded on the way."""

    def __init__(self, *, whole: bool, stays_float: bool, **options: Any) -> None:
        mode = "numeric" if whole else "decimal"
        super().__init__(widget=forms.TextInput(attrs={"inputmode": mode, "autocomplete": "off"}), **options)
        self._whole, self._stays_float = whole, stays_float

    def clean(self, value: Any) -> Any:
        text = str(super().clean(value)).strip()
        if not text:
            return _LEFT_OUT
        try:
            number = (
                json.loads(text)
                if re.fullmatch(r"-?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,3})?", text)
                else None
            )
        except ValueError:
            number = None
        if number is None or (self._whole and not isinstance(number, int)):
            raise forms.ValidationError("Write a whole number." if self._whole else "Write a number.")
        return float(number) if self._stays_float else number


class _ChoiceOfJson(forms.ChoiceField):
    """One of a schema's enumerated values; the value comes back with its own type."""

    def __init__(
        self, values: list[JSONValue], *, initial: JSONValue, required: bool, **options: Any
    ) -> None:
        choices = [(json.dumps(value), str(value)) for value in values]
        if not required or initial is None:
            choices = [("", "–"), *choices]
        super().__init__(choices=choices, initial=json.dumps(initial), required=required, **options)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        return json.loads(text) if text else _LEFT_OUT


class _Json(forms.CharField):
    """A list, an object, or a value of several types, as JSON."""

    def __init__(self, *, initial: JSONValue, **options: Any) -> None:
        text = "" if initial is None else json.dumps(initial, ensure_ascii=False, indent=2)
        rows = min(16, max(3, text.count("\n") + 1))
        widget = forms.Textarea(attrs={"rows": rows, "class": "mono", "spellcheck": "false"})
        options["help_text"] = options.get("help_text") or "As JSON."
        super().__init__(widget=widget, initial=text, **options)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        return _parsed(text) if text.strip() else _LEFT_OUT


def _parsed(text: str) -> JSONValue:
    try:
        return parse_json(text)
    except Refusal as refusal:
        raise forms.ValidationError(refusal.message) from None


def _text_filter(label: str, max_length: int) -> forms.CharField:
    return forms.CharField(required=False, max_length=max_length, label=label)


class EffectFilter(forms.Form):
    """The filters of the effect log; its address is the view."""

    q = _text_filter("Id or reference", 200)
    status = _choice_filter("Status", [("", "Any status"), *EffectStatus.choices])
    sub_state = _choice_filter(
        "Where it stands",
        [("", "Anywhere"), *((value, label) for value, label in SubState.choices if value)],
    )
    type = _choice_filter("Type")
    receiver = _choice_filter("Receiver")
    customer = _text_filter("Customer", 120)
    run = _text_filter("Run", 40)
    review = _choice_filter("Review", [("", "Any"), ("open", "In review")])
    order = _choice_filter("Order", [("", "Any"), ("open", "Ordered")])

    def __init__(self, data: Any, *, receivers: list[str]) -> None:
        super().__init__(data)
        types = [(promise.type, promise.title) for promise in contracts().values()]
        self.fields["type"].choices = [("", "All types"), *types]  # type: ignore[attr-defined]
        self.fields["receiver"].choices = [  # type: ignore[attr-defined]
            ("", "All receivers"),
            *((name, name) for name in receivers),
        ]

    def conditions(self) -> dict[str, str]:
        """Each filter that is set, by the ledger's column. Only after is_valid()."""
        columns = {"status": "status", "sub_state": "sub_state", "type": "effect_type", "receiver": "receiver__name",
                   "customer": "customer_ref", "run": "run_id"}  # fmt: skip
        return {
            column: self.cleaned_data[name] for name, column in columns.items() if self.cleaned_data[name]
        }


def first_problem(form: forms.Form) -> str:
    """The first thing that is wrong with a form, as one sentence that names its field."""
    for name, messages in form.errors.items():
        label = form.fields[name].label if name in form.fields else ""
        return f"{label}: {messages[0]}" if label else str(messages[0])
    return ""
