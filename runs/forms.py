"""What people type into the pages of runs: filters, and the start form made from a workflow's schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import QueryDict

from console.kernel.canonical import parse_json
from console.kernel.errors import BadRequest, Invalid, Refusal
from console.pages import LeverForm, new_token
from runs.models import Conversation, Run, WorkflowVersion
from runs.selectors import narrowed
from runs.states import NEEDS, UNDER_WAY, Failure, RunKind, RunMode, RunStatus


def refuse_what_does_not_parse(form: forms.Form) -> None:
    """Raise BadRequest that names the first field whose value can't be read. An address is never half obeyed."""
    if form.is_valid():
        return
    field, errors = next(iter(form.errors.items()))
    raise BadRequest(
        f"The address can't be read: {field}: {' '.join(str(error) for error in errors)}", field=field
    )


def _any(label: str, choices: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [("", label), *choices]


class RunFilter(forms.Form):
    """The filters of the Runs page. Every field may be empty; the address holds them all."""

    status = forms.ChoiceField(
        required=False,
        choices=_any("Any status", [(NEEDS, "Needs a person"), (UNDER_WAY, "Under way"), *RunStatus.choices]),
    )
    failure = forms.ChoiceField(required=False, choices=_any("Any failure", Failure.choices))
    of = forms.CharField(
        required=False,
        max_length=200,
        label="Receiver or step that failed it",
        widget=forms.TextInput(attrs={"class": "input", "placeholder": "Receiver or step"}),
    )
    workflow = forms.CharField(required=False, max_length=80)
    kind = forms.ChoiceField(required=False, choices=_any("Any kind", RunKind.choices))
    mode = forms.ChoiceField(required=False, choices=_any("Any mode", RunMode.choices))
    customer = forms.CharField(
        required=False,
        max_length=120,
        label="Customer reference",
        widget=forms.TextInput(attrs={"class": "input", "placeholder": "Customer reference"}),
    )
    more = forms.ChoiceField(required=False, choices=[("", ""), ("1", "")])
    q = forms.CharField(required=False, max_length=200)
    cursor = forms.CharField(required=False, max_length=2000)

    @classmethod
    def read(cls, given: QueryDict) -> RunFilter:
        """The filter of an address. Raises BadRequest where a value is none that the field knows."""
        form = cls(given)
        refuse_what_does_not_parse(form)
        return form

    def narrow(self, queryset: QuerySet[Run]) -> QuerySet[Run]:
        """*queryset* with every filter that is set. ``q`` looks in title, customer and customer's name."""
        return narrowed(queryset, self.conditions)

    @property
    def conditions(self) -> dict[str, str]:
        """Each filter that is set, by its name in the address: what a bulk act keeps of it."""
        return {
            name: value
            for name, value in self.cleaned_data.items()
            if value and name not in ("cursor", "more")
        }

    @property
    def is_narrow(self) -> bool:
        return bool(self.conditions)

    @property
    def selects(self) -> list[forms.BoundField]:
        """The filters that stand there when they are asked for or set."""
        return [self[name] for name in _MORE]

    @property
    def shows_more(self) -> bool:
        return any(self.cleaned_data[name] for name in ("more", *_MORE))

    @property
    def with_more(self) -> str:
        return self.address(more="1")

    def address(self, **changed: str) -> str:
        """The query string of this view with some fields changed; paging starts anew unless a cursor is given."""
        values = {**self.cleaned_data, "cursor": "", **changed}
        query = QueryDict(mutable=True)
        query.update({name: value for name, value in values.items() if value})
        return f"?{query.urlencode()}"


_MORE = ("failure", "of", "kind", "mode", "customer")


#: The parts of the Run page; none chosen is the one that has most to say.
PARTS = ("", "checkpoints", "effects", "approvals", "messages", "lineage", "input")


class PageChoice(forms.Form):
    """Which part of the Run page is shown, and what is open beside the journal."""

    part = forms.ChoiceField(
        required=False,
        choices=[(name, name) for name in PARTS],
    )
    show = forms.CharField(required=False, max_length=64)

    @classmethod
    def read(cls, given: QueryDict) -> PageChoice:
        form = cls(given)
        refuse_what_does_not_parse(form)
        return form

    @property
    def chosen_part(self) -> str:
        return str(self.cleaned_data["part"])

    @property
    def chosen_id(self) -> str:
        return str(self.cleaned_data["show"])


#: Where a simulation's models are answered from.
ASKED, RECORDED = "asked", "recorded"


class ReplayChoice(forms.Form):
    """What the form of a replay is shown for: ``?mode=``, a simulation's ``?models=``, the reason typed so far."""

    mode = forms.ChoiceField(required=False, choices=[("", ""), *RunMode.choices])
    models = forms.ChoiceField(required=False, choices=[(name, name) for name in ("", RECORDED, ASKED)])
    reason = forms.CharField(required=False, max_length=2000)

    @classmethod
    def read(cls, given: QueryDict) -> ReplayChoice:
        form = cls(given)
        refuse_what_does_not_parse(form)
        return form

    @property
    def chosen_mode(self) -> RunMode | None:
        """None where the address names none."""
        chosen = self.cleaned_data["mode"]
        return RunMode(chosen) if chosen else None

    @property
    def models_asked(self) -> bool:
        return bool(self.cleaned_data["models"] == ASKED)

    @property
    def typed(self) -> str:
        return str(self.cleaned_data["reason"])


class ReplayForm(ReplayChoice):
    """What is posted to launch one. A form without a token or a mode was not made here: BadRequest."""

    mode = forms.ChoiceField(choices=RunMode.choices)

    @classmethod
    def read(cls, given: QueryDict) -> ReplayForm:
        form = cls(given)
        form.token = LeverForm.token_of(given)
        refuse_what_does_not_parse(form)
        return form

    token = ""

    @property
    def asked(self) -> dict[str, Any]:
        """As the command takes it."""
        return {
            "mode": RunMode(self.cleaned_data["mode"]),
            "models_asked": self.models_asked,
            "reason": self.typed,
            "token": self.token,
        }


class PermitForm(forms.Form):
    """What is posted to permit an irreversible type. What is missing or does not fit is the command's to say."""

    effect_type = forms.CharField(required=False, max_length=200)
    reason = forms.CharField(required=False, max_length=2000)

    @classmethod
    def read(cls, given: QueryDict) -> PermitForm:
        form = cls(given)
        refuse_what_does_not_parse(form)
        return form


class Paging(forms.Form):
    """A list with a text to find and a cursor."""

    q = forms.CharField(required=False, max_length=200)
    cursor = forms.CharField(required=False, max_length=2000)

    @classmethod
    def read(cls, given: QueryDict) -> Paging:
        form = cls(given)
        refuse_what_does_not_parse(form)
        return form


# -- Start: a form made from a workflow's input schema ------------------------------------------------------------

#: Of a workspace's conversations the chooser holds the newest.
CHOOSER = 100


class Exact(forms.CharField):
    """A number as it is typed: a whole one stays whole, nothing passes through a float that need not."""

    def __init__(self, *, whole: bool, **kwargs: Any) -> None:
        self.whole = whole
        super().__init__(
            widget=forms.NumberInput(attrs={"step": "1" if whole else "any", "inputmode": "decimal"}),
            **kwargs,
        )

    def clean(self, value: Any) -> int | float | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            number = parse_json(text)
        except Refusal:
            number = None
        if isinstance(number, bool) or not isinstance(number, int if self.whole else int | float):
            raise forms.ValidationError("Enter a whole number." if self.whole else "Enter a number.")
        return number


class Json(forms.CharField):
    """A part of the input that has no field of its own: an object or a list, as JSON."""

    widget = forms.Textarea(attrs={"rows": 6, "spellcheck": "false", "class": "mono"})

    def prepare_value(self, value: Any) -> Any:
        return (
            value
            if value is None or isinstance(value, str)
            else json.dumps(value, ensure_ascii=False, indent=2)
        )

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        try:
            return parse_json(text)
        except Refusal as refusal:
            raise forms.ValidationError(f"This is not JSON: {refusal.message}") from None


class StartForm(forms.Form):
    """The form of one workflow version: a field for each property of its input, in the schema's order."""

    PREFIX = "input."

    form_token = forms.RegexField(regex=r"\A[0-9A-Za-z-]{8,64}\Z", widget=forms.HiddenInput)
    conversation = forms.ModelChoiceField(
        queryset=Conversation.objects.none(),
        required=False,
        help_text="The run's messages go there, and its customer is the conversation's.",
    )

    def __init__(
        self,
        workflow: WorkflowVersion,
        conversations: QuerySet[Conversation],
        data: QueryDict | None = None,
        *,
        chosen: Conversation | None = None,
    ) -> None:
        super().__init__(data, initial={"form_token": new_token(), "conversation": chosen})
        self.workflow = workflow
        self.schema = _resolved(workflow.input_schema, workflow.input_schema)
        choice = self.fields["conversation"]
        if isinstance(choice, forms.ModelChoiceField):
            choice.required = workflow.needs_conversation
            choice.queryset = conversations
            choice.choices = _conversation_choices(conversations, chosen, needed=choice.required)
        for name, part in self.properties.items():
            self.fields[self.PREFIX + name] = _field(name, part, name in self.required)

    @property
    def properties(self) -> dict[str, dict[str, Any]]:
        return {
            name: _resolved(part, self.workflow.input_schema)
            for name, part in self.schema.get("properties", {}).items()
        }

    @property
    def required(self) -> list[str]:
        return list(self.schema.get("required", []))

    @property
    def inputs(self) -> list[forms.BoundField]:
        return [self[self.PREFIX + name] for name in self.properties]

    @property
    def given(self) -> dict[str, Any]:
        """The input as it goes to the command: what was left empty is left out."""
        values = {name: self.cleaned_data.get(self.PREFIX + name) for name in self.properties}
        return {name: value for name, value in values.items() if value is not None and value != ""}

    def refuse(self, refusal: Refusal) -> None:
        """Put a refusal beside the field that it is about; what belongs to none stands on top."""
        errors = (
            refusal.errors
            if isinstance(refusal, Invalid) and refusal.errors
            else [(refusal.field or "", refusal.message)]
        )
        for path, message in errors:
            beside = (self.PREFIX + path.split(".")[0], path)
            self.add_error(next((name for name in beside if name in self.fields), None), message)


def _conversation_choices(
    conversations: QuerySet[Conversation], chosen: Conversation | None, *, needed: bool
) -> list[tuple[str, str]]:
    newest = list(conversations.order_by("-created_at", "-id")[:CHOOSER])
    if chosen is not None and chosen not in newest:
        newest.insert(0, chosen)
    none = "Choose…" if needed else "None: a run on its own"
    return [("", none), *((one.id, f"{one.subject} · {one.customer_name}") for one in newest)]


def _resolved(part: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with its own ``$ref`` followed, and "this or nothing" read as this."""
    found = dict(part)
    for _ in range(8):
        reference = found.pop("$ref", "")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        target: Any = whole
        for step in reference[2:].split("/"):
            target = target.get(step, {}) if isinstance(target, Mapping) else {}
        found = {**target, **found} if isinstance(target, Mapping) else found
    several = found.get("anyOf") or found.get("oneOf") or []
    real = [one for one in several if isinstance(one, Mapping) and one.get("type") != "null"]
    if len(real) == 1:
        return _resolved({**found, "anyOf": [], "oneOf": [], **real[0]}, whole)
    return found


def _field(name: str, schema: Mapping[str, Any], required: bool) -> forms.Field:
    """The form's field for one property. What has no field of its own is typed as JSON; the schema judges it all."""
    about: dict[str, Any] = {
        "label": str(schema.get("title") or name.replace("_", " ").capitalize()),
        "help_text": str(schema.get("description") or ""),
        "required": required,
        "initial": schema.get("default"),
    }
    kind = schema.get("type")
    if isinstance(schema.get("enum"), list):
        return _choice(schema["enum"], about)
    if kind == "boolean":
        return forms.BooleanField(**{**about, "required": False})
    if kind in ("integer", "number"):
        return Exact(whole=kind == "integer", **about)
    if kind == "string":
        return _text(schema, about)
    return Json(**about)


def _choice(values: list[Any], about: dict[str, Any]) -> forms.Field:
    """The options of an enum; what is chosen keeps the type that the schema gives it."""
    by_text = {str(value): value for value in values if value is not None}
    choices = [(text, text) for text in by_text]
    if not about["required"] or len(choices) > 1:
        choices.insert(0, ("", "Choose…" if about["required"] else "None"))
    return forms.TypedChoiceField(
        choices=choices, coerce=lambda text: by_text.get(text, text), empty_value=None, **about
    )


def _text(schema: Mapping[str, Any], about: dict[str, Any]) -> forms.Field:
    limits: dict[str, Any] = {"min_length": schema.get("minLength"), "max_length": schema.get("maxLength")}
    if schema.get("x-multiline"):
        return forms.CharField(
            widget=forms.Textarea(attrs={"rows": 8, "dir": "auto"}), strip=False, **limits, **about
        )
    if schema.get("format") == "email":
        limits["max_length"] = limits["max_length"] or 320
        return forms.EmailField(**limits, **about)
    return forms.CharField(**limits, **about)


class StartOn(forms.Form):
    """The conversation that a start form begins with."""

    conversation = forms.CharField(required=False, max_length=64)

    @classmethod
    def read(cls, given: QueryDict) -> StartOn:
        form = cls(given)
        refuse_what_does_not_parse(form)
        return form

    @property
    def chosen_id(self) -> str:
        return str(self.cleaned_data["conversation"])


class ComparedRuns(forms.Form):
    """The two runs of the Compare page. Without *b* it asks for it."""

    a = forms.CharField(max_length=64)
    b = forms.CharField(required=False, max_length=64)

    @classmethod
    def read(cls, given: QueryDict) -> ComparedRuns:
        """Raises BadRequest without a first run."""
        form = cls(given)
        refuse_what_does_not_parse(form)
        return form

    @property
    def first_id(self) -> str:
        return str(self.cleaned_data["a"])

    @property
    def second_id(self) -> str:
        return str(self.cleaned_data["b"])
