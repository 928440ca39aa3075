"""Fitting a value into a JSON Schema, as a model that keeps to a schema would.

Only what schemas of tools and answers use: objects, arrays, scalars, enum, const, anyOf/oneOf, $ref into $defs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = Mapping[str, Any]
_DEPTH: Final = 12  # recursive schemas end here


def fit(value: object, schema: Schema, root: Schema | None = None, depth: int = 0) -> Any:
    """*value* in the shape of *schema*: unknown fields dropped, missing required ones filled with the plainest value."""
    root = schema if root is None else root
    schema = resolved(schema, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return nearest(value, schema["enum"])
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return fit(value, choose(value, options, root), root, depth + 1)
    return by_type(value, schema, root, depth)


def resolved(schema: Schema, root: Schema) -> Schema:
    """The schema that a ``$ref`` inside the document points to; an empty one where it points nowhere."""
    for _ in range(_DEPTH):
        if "$ref" not in schema:
            break
        target: Any = root
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            target = target.get(part, {}) if isinstance(target, Mapping) else {}
        schema = target
    return schema


def type_of(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    return str(kind or ("object" if "properties" in schema else "any"))


def allows_null(schema: Schema, root: Schema) -> bool:
    schema = resolved(schema, root)
    options = schema.get("anyOf") or schema.get("oneOf") or ()
    kind = schema.get("type")
    return (
        kind == "null"
        or (isinstance(kind, list) and "null" in kind)
        or any(allows_null(o, root) for o in options)
    )


def choose(value: object, options: list[Schema], root: Schema) -> Schema:
    """The alternative that suits the value's type; null for a value that is not there, if it may be."""
    if value is None:
        return next((option for option in options if allows_null(option, root)), options[0])
    for option in options:
        if isinstance(value, python_types(type_of(resolved(option, root)))):
            return option
    return next((option for option in options if not allows_null(option, root)), options[0])


def python_types(kind: str) -> tuple[type, ...]:
    return {
        "object": (dict,),
        "array": (list, tuple),
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "boolean": (bool,),
        "null": (type(None),),
    }.get(kind, (object,))


def by_type(value: object, schema: Schema, root: Schema, depth: int) -> Any:
    if value is None and "default" in schema:
        return schema["default"]
    if value is None and allows_null(schema, root):
        return None
    kind = type_of(schema)
    if kind == "object":
        return fit_object(value if isinstance(value, dict) else {}, schema, root, depth)
    if kind == "array":
        return fit_array(value, schema, root, depth)
    return fit_scalar(value, kind, schema)


def fit_object(value: dict[str, Any], schema: Schema, root: Schema, depth: int) -> dict[str, Any]:
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    if not properties:
        return value
    required = schema.get("required", ())
    return {
        name: fit(value.get(name), part, root, depth + 1)
        for name, part in properties.items()
        if value.get(name) is not None or (name in required and depth < _DEPTH)
    }


def fit_array(value: object, schema: Schema, root: Schema, depth: int) -> list[Any]:
    items = list(value) if isinstance(value, list | tuple) else []
    while len(items) < schema.get("minItems", 0):
        items.append(None)
    return [fit(item, schema.get("items", {}), root, depth + 1) for item in items]


def fit_scalar(value: object, kind: str, schema: Schema) -> Any:
    if kind == "string":
        text = "" if value is None else str(value)
        return text[: schema["maxLength"]] if "maxLength" in schema else text
    if kind == "boolean":
        return bool(value)
    if kind in ("integer", "number"):
        return within(number(value), kind, schema)
    return value


def number(value: object) -> float:
    try:
        return float(value) if isinstance(value, int | float | str) else 0.0
    except ValueError:
        return 0.0


def within(value: float, kind: str, schema: Schema) -> int | float:
    value = max(value, schema.get("minimum", value))
    value = min(value, schema.get("maximum", value))
    return int(value) if kind == "integer" else value


def nearest(value: object, among: list[Any]) -> Any:
    """The member that the value names, wholly or in part; else the one that means "none of these"; else the first."""
    if value in among:
        return value
    text = str(value).lower()
    for member in among:
        if isinstance(member, str) and value and (member.lower() in text or text in member.lower()):
            return member
    if value is None and None in among:
        return None
    return next((member for member in among if member in ("other", "normal", "medium")), among[0])
