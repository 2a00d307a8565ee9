"""Imports point down (DESIGN.md, "Layout"); nothing grows too long (STYLE.md, "By the numbers")."""

import ast
import graphlib
from pathlib import Path
from typing import NamedTuple

import pytest


ROOT = Path(__file__).parent.parent

# The longest prefix wins. A new module needs a line here, or a package that has one.
FLOORS = {
    "codexdrv.errors": 0,
    "codexdrv.exits": 0,
    "codexdrv.ids": 0,
    "codexdrv.wire": 1,
    "codexdrv.protocol": 2,
    "codexdrv.rules": 3,
    "codexdrv.transport": 4,
    "codexdrv.journal": 4,
    "codexdrv.bell": 4,
    "codexdrv.binary": 4,
    "codexdrv.snapshot": 4,
    "codexdrv.paths": 4,
    "codexdrv.lock": 4,
    "codexdrv.clock": 4,
    "codexdrv.engine": 5,
    "codexdrv.driver": 6,
    "codexdrv.generations": 6,
    "codexdrv.config": 6,
    "codexdrv.table": 6,
    "codexdrv.logs": 6,
    "codexdrv.client": 6,
    "codexdrv.connect": 6,
    "codexdrv.inquiry": 6,
    "codexdrv.story": 6,
    "codexdrv.health": 6,
    "codexdrv.doctor": 6,
    "supervisor": 7,
    "codexdrv.cli": 8,
    "codexdrv.demo": 8,
    "codexdrv.__main__": 8,
    "codexdrv": 8,
}
# This one names its `__init__` only, else it would take in every module that was forgotten.
NO_PREFIX = {"codexdrv"}

PURE_FLOOR_MAX = 3
IMPURE = {
    "anyio",
    "asyncio",
    "os",
    "random",
    "secrets",
    "select",
    "socket",
    "sqlite3",
    "structlog",
    "subprocess",
    "threading",
    "time",
}
LOGGING_FLOOR_MIN = 5
# The only floor that may load modules by name: commands and lazy exports.
TOP_FLOOR = 8
# Below it each load is listed, as "module loads 'target'"; both spare `deliver` 3 ms.
LOADS = {
    "codexdrv.config loads 'tomllib'",
    "codexdrv.journal.journal loads 'codexdrv.journal.tombstones'",
}

BODY_LINES_MAX = 40
MODULE_LINES_MAX = 300
# Exceptions, each with its reason in a comment: "module" or "module:function".
IMPORTS_IN_FUNCTIONS: set[str] = set()
LONG: set[str] = set()

# The modules of PyPI's `supervisor`: sharing no name, the two survive in one environment.
FOREIGN_MODULES = {
    "childutils",
    "compat",
    "confecho",
    "datatypes",
    "dispatchers",
    "events",
    "http",
    "http_client",
    "loggers",
    "medusa",
    "options",
    "pidproxy",
    "poller",
    "process",
    "rpcinterface",
    "scripts",
    "skel",
    "socket_manager",
    "states",
    "supervisorctl",
    "supervisord",
    "templating",
    "tests",
    "web",
    "xmlrpc",
}


class Module(NamedTuple):
    name: str
    text: str
    tree: ast.Module


class Import(NamedTuple):
    target: str
    line: int


def read_modules():
    paths = sorted(
        path for top in ("codexdrv", "supervisor") for path in (ROOT / top).rglob("*.py")
    )
    for path in paths:
        parts = path.relative_to(ROOT).with_suffix("").parts
        text = path.read_text("utf-8")
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield Module(name, text, ast.parse(text, str(path)))


MODULES = {module.name: module for module in read_modules()}


def floor_of(name):
    fits = [
        prefix
        for prefix in FLOORS
        if name == prefix or (prefix not in NO_PREFIX and name.startswith(prefix + "."))
    ]
    return FLOORS[max(fits, key=len)] if fits else None


def imports_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = "." * node.level + (node.module or "")
            for alias in node.names:
                full = f"{package}.{alias.name}"
                yield Import(full if full in MODULES else package, node.lineno)


def loads_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in {"import_module", "__import__"}:
                yield node


def functions_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def body_lines(function):
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return function.end_lineno - body[0].lineno + 1 if body else 0


def is_ours(target):
    return target.partition(".")[0] in {"codexdrv", "supervisor"}


def imports_where(forbidden):
    """Every import for which `forbidden(floor of the module, target)` holds."""
    return [
        f"{module.name}:{line} imports {target}"
        for module in MODULES.values()
        if (floor := floor_of(module.name)) is not None
        for target, line in imports_of(module.tree)
        if forbidden(floor, target)
    ]


def test_every_module_has_a_floor():
    assert [name for name in MODULES if floor_of(name) is None] == []


def test_every_import_of_ours_points_down_or_along_one_floor():
    def points_up(floor, target):
        # No floor: a relative import, or a module that does not exist.
        return target.startswith(".") or (
            is_ours(target) and (floor_of(target) is None or floor_of(target) > floor)
        )

    assert imports_where(points_up) == []


def test_no_two_packages_import_each_other():
    graph = {}
    for module in MODULES.values():
        package = ".".join(module.name.split(".")[:2])
        targets = (target for target, _ in imports_of(module.tree) if is_ours(target))
        graph.setdefault(package, set()).update(".".join(t.split(".")[:2]) for t in targets)
    graphlib.TopologicalSorter({p: targets - {p} for p, targets in graph.items()}).prepare()


def test_no_import_stands_in_a_function():
    found = {
        f"{module.name}:{function.name}"
        for module in MODULES.values()
        for function in functions_of(module.tree)
        if any(imports_of(function))
    }
    assert found - IMPORTS_IN_FUNCTIONS == set()


def test_below_the_top_floor_only_listed_modules_are_loaded_by_name():
    found = {
        f"{module.name} loads {', '.join(map(ast.unparse, call.args))}"
        for module in MODULES.values()
        if floor_of(module.name) != TOP_FLOOR
        for call in loads_of(module.tree)
    }
    assert found == LOADS


def test_the_driver_does_not_know_the_supervisor():
    found = [
        line
        for line in imports_where(
            lambda floor, target: floor < TOP_FLOOR and target.startswith("supervisor")
        )
        if line.startswith("codexdrv")
    ]
    assert found == []


def test_the_core_is_pure():
    def is_impure(floor, target):
        return floor <= PURE_FLOOR_MAX and target.partition(".")[0] in IMPURE

    assert imports_where(is_impure) == []


def test_nothing_below_the_engine_logs():
    def logs(floor, target):
        return floor < LOGGING_FLOOR_MIN and target.partition(".")[0] == "structlog"

    assert imports_where(logs) == []


def test_the_supervisor_shares_no_module_with_the_one_on_pypi():
    names = {part for name in MODULES for part in name.split(".") if name.startswith("supervisor.")}
    assert names & FOREIGN_MODULES == set()


def test_the_supervisor_package_itself_holds_a_docstring_only():
    (only,) = MODULES["supervisor"].tree.body
    assert ast.get_docstring(MODULES["supervisor"].tree)
    assert isinstance(only, ast.Expr)


def test_every_function_fits_a_screen():
    found = {
        f"{module.name}:{function.name}": body_lines(function)
        for module in MODULES.values()
        for function in functions_of(module.tree)
        if body_lines(function) > BODY_LINES_MAX
    }
    assert {where: lines for where, lines in found.items() if where not in LONG} == {}


def test_every_module_can_be_read_in_one_go():
    sizes = {module.name: len(module.text.splitlines()) for module in MODULES.values()}
    found = {name: lines for name, lines in sizes.items() if lines > MODULE_LINES_MAX}
    assert {where: lines for where, lines in found.items() if where not in LONG} == {}


@pytest.mark.parametrize(
    ("name", "floor"),
    [
        ("codexdrv.engine.rpc", 5),
        ("codexdrv", 8),
        ("codexdrv.newcomer", None),
        ("codexdrv.errorsome", None),
        ("supervisor.child", 7),
    ],
)
def test_the_longest_prefix_decides_and_the_root_is_no_prefix(name, floor):
    assert floor_of(name) == floor


def test_the_scan_sees_every_kind_of_import():
    text = """
import a.b, c
from codexdrv import errors
from codexdrv.errors import Bug
from . import d
async def f():
    try:
        import e
    finally: ...
"""
    targets = {target for target, _ in imports_of(ast.parse(text))}
    assert targets == {"a.b", "c", "codexdrv.errors", ".", "e"}


def test_a_docstring_does_not_count_as_body():
    text = """
def f():
    '''One.

    Two.
    '''
    a = 1
    return a
"""
    (function,) = ast.parse(text).body
    assert body_lines(function) == len(("a = 1", "return a"))
