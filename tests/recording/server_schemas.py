"""Extract from a server's own schema what we use of it: names and types, no prose.

`requests.json` has, for each method that we send, every param (and the members of params that we
send) and the members of its result that we read; `notifications.json` the members of each
notification that we read, and which of those that we opt out of there are; `questions.json` the
whole schema of the result of each request that the server makes. What a version does not have is
not in its file.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from codexdrv.protocol.methods import OPT_OUT
from tests.recording.used import Paths, build_calls, sent_members


GENERATE_TIMEOUT_S = 60

PROSE = {"description", "title"}
NAMED = {"definitions", "properties"}
"""Where a key is a name that the server chose, `title` for one, and no word of JSON Schema."""

Schema = dict[str, Any]


class Place(NamedTuple):
    """A schema, and the document that its references mean."""

    schema: Schema
    document: Schema


class Found(NamedTuple):
    """A member in one of the shapes that an object may have."""

    place: Place
    is_required: bool


def generate_schema(binary: str, directory: Path) -> None:
    """Have a server write its schema."""
    command = [binary, "app-server", "generate-json-schema", "--experimental", "--out"]
    env = {"HOME": str(directory), "CODEX_HOME": str(directory), "PATH": "/usr/bin:/bin"}
    subprocess.run(
        [*command, str(directory)],
        env=env,
        check=True,
        capture_output=True,
        timeout=GENERATE_TIMEOUT_S,
    )


def extract_schemas(binary: str, directory: Path, *, news: Paths, results: Paths) -> None:
    """Write what we use of a server's schema."""
    with tempfile.TemporaryDirectory(prefix="codexdrv-schema-") as made:
        generate_schema(binary, Path(made))
        requests = _extract_requests(Path(made), results)
        notifications = _extract_notifications(Path(made), news)
        questions = _extract_questions(Path(made))
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "requests.json", requests)
    _write(directory / "notifications.json", notifications)
    _write(directory / "questions.json", questions)


def without_prose(schema: Any) -> Any:
    """Copy a schema, without what it says to people."""
    match schema:
        case dict():
            return {
                key: _each_without_prose(value) if key in NAMED else without_prose(value)
                for key, value in schema.items()
                if key not in PROSE
            }
        case list():
            return [without_prose(each) for each in schema]
        case _:
            return schema


def _each_without_prose(named: Schema) -> Schema:
    return {name: without_prose(schema) for name, schema in named.items()}


def _write(path: Path, body: Schema) -> None:
    text = json.dumps(body, indent=1, sort_keys=True)
    path.write_text(f"{text}\n", "utf-8")


def _extract_requests(made: Path, results: Paths) -> Schema:
    known = _methods_of(made / "ClientRequest.json")
    found: Schema = {}
    for call in build_calls():
        if call.method not in known:
            continue
        params = known[call.method]
        entry = found.setdefault(call.method, {"params": {}, "result": {}})
        sent = [each.path for each in sent_members(call)]
        entry["params"] |= _describe_all(params, [*_names(params), *sent])
        document = _response_of(made, params)
        entry["result"] = _describe_all(document, sorted(results[call.method]))
    return found


def _extract_notifications(made: Path, news: Paths) -> Schema:
    known = _methods_of(made / "ServerNotification.json")
    return {
        "opt_out": [method for method in OPT_OUT if method in known],
        "read": {
            method: _describe_all(known[method], sorted(paths))
            for method, paths in news.items()
            if method in known
        },
    }


def _extract_questions(made: Path) -> Schema:
    asked = _methods_of(made / "ServerRequest.json")
    return {method: without_prose(_answer_to(made, params)) for method, params in asked.items()}


def _answer_to(made: Path, params: Place) -> Schema:
    answer: Schema = json.loads((made / f"{_name_of(params)}Response.json").read_text("utf-8"))
    return answer


def _methods_of(path: Path) -> dict[str, Place]:
    """Method → its params."""
    document = json.loads(path.read_text("utf-8"))
    shapes = (shape["properties"] for shape in document["oneOf"])
    return {
        shape["method"]["enum"][0]: Place(shape.get("params", {}), document) for shape in shapes
    }


def _name_of(params: Place) -> str:
    name: str = params.schema["$ref"].rpartition("/")[2]
    return name.removesuffix("Params")


def _response_of(made: Path, params: Place) -> Place:
    (path,) = (path for path in made.glob(f"v[12]/{_name_of(params)}Response.json"))
    document = json.loads(path.read_text("utf-8"))
    return Place(document, document)


def _describe_all(place: Place, paths: list[str]) -> Schema:
    described = {path: _describe(_find(place, path)) for path in paths}
    return {path: each for path, each in described.items() if each is not None}


def _describe(found: list[Found]) -> Schema | None:
    if not found:
        return None
    shapes = [shape for each in found for shape in _shapes(each.place)]
    types = sorted({name for shape in shapes for name in _types(shape.schema)})
    words = sorted({word for shape in shapes for word in _words(shape)})
    entry: Schema = {
        "type": "|".join(types) or "any",
        "required": all(each.is_required for each in found),
    }
    return entry | ({"enum": words} if words else {})


def _types(schema: Schema) -> list[str]:
    named = schema.get("type", [])
    return [named] if isinstance(named, str) else named


def _words(shape: Place) -> Iterator[str]:
    """Yield the words that a string, or the strings of a list, may be."""
    yield from shape.schema.get("enum", ())
    if isinstance(items := shape.schema.get("items"), dict):
        for inner in _shapes(shape._replace(schema=items)):
            yield from inner.schema.get("enum", ())


def _find(place: Place, path: str) -> list[Found]:
    """Find a member in every shape that has it."""
    found = [Found(place, is_required=True)]
    for step in path.split("."):
        name = step.rstrip("[]")
        found = [inner for each in found for inner in _members(each.place, name)]
        for _ in range(step.count("[]")):
            found = [inner for each in found for inner in _items(each)]
    return found


def _members(place: Place, name: str) -> Iterator[Found]:
    for shape in _shapes(place):
        member = shape.schema.get("properties", {}).get(name)
        if member is not None:
            is_required = name in shape.schema.get("required", ())
            yield Found(shape._replace(schema=member), is_required)


def _items(found: Found) -> Iterator[Found]:
    for shape in _shapes(found.place):
        if "items" in shape.schema:
            yield found._replace(place=shape._replace(schema=shape.schema["items"]))


def _names(place: Place) -> list[str]:
    return sorted({name for shape in _shapes(place) for name in shape.schema.get("properties", {})})


def _shapes(place: Place) -> Iterator[Place]:
    """Yield every shape that a value may have, with references followed."""
    schema = place.schema
    if "$ref" in schema:
        target: Any = place.document
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        yield from _shapes(place._replace(schema=target))
    for choice in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(choice, ()):
            yield from _shapes(place._replace(schema=each))
    yield place
