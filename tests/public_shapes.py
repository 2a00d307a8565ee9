"""The JSON Schemas of what we print (`schemas/`), and which command prints which."""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource


SCHEMAS = Path(__file__).parents[1] / "schemas"
SUFFIX = ".schema.json"

PRINTED = {
    "deliver": ("delivery", "refused-line"),
    "status": ("machine", "delivery", "explained-delivery"),
    "list": ("delivery",),
    "threads": ("thread",),
    "cancel": ("delivery",),
    "reconcile": ("delivery", "opinion"),
    "resolve": ("delivery",),
    "doctor": ("doctor",),
    "attention": ("question",),
    "answer": ("answered",),
}
"""Command → the objects that it prints with --json; any of them may print an `error` instead."""
WRITTEN = ("status-file",)
"""What the supervisor writes."""


def load_schemas() -> dict[str, dict[str, Any]]:
    """Read every schema, by name."""
    return {
        path.name.removesuffix(SUFFIX): json.loads(path.read_text("utf-8"))
        for path in sorted(SCHEMAS.iterdir())
    }


def check(name: str, body: Any) -> None:
    """Raise what does not fit the schema of this name."""
    schemas = load_schemas()
    # A schema refers to another by the name of its file.
    files = {f"{each}{SUFFIX}": Resource.from_contents(schemas[each]) for each in schemas}
    registry: Registry[Any] = Registry().with_resources(files.items())
    Draft202012Validator(schemas[name], registry=registry).validate(body)
