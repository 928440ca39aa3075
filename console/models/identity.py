"""The primary keys of everything a person may see: prefix, underscore, 26 sortable characters."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import models

from console.kernel.ids import new_id

if TYPE_CHECKING:
    TextField = models.CharField[str, str]
else:
    TextField = models.CharField


class PrefixedId(TextField):
    """A primary key such as ``run_01J…``, made in Python when the object is made, so that it can be told at once."""

    def __init__(self, prefix: str, **kwargs: Any) -> None:
        self.prefix = prefix
        kwargs.setdefault("max_length", 40)
        kwargs.setdefault("primary_key", True)
        kwargs["default"] = partial(new_id, prefix)
        kwargs["editable"] = False
        super().__init__(**kwargs)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        for implied in ("default", "editable", "primary_key"):
            kwargs.pop(implied, None)
        if kwargs.get("max_length") == 40:
            del kwargs["max_length"]
        return name, path, [self.prefix, *args], kwargs
