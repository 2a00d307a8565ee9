"""One test file a module, and one module a test file."""

import ast
from pathlib import Path

import pytest


ROOT = Path(__file__).parent.parent
MIRRORED = ("wire", "protocol", "rules", "transport", "journal", "engine")

# Exceptions, each with its reason in a comment.
TESTS_OF_NO_MODULE: set[str] = set()
MODULES_WITHOUT_TEST: set[str] = set()


def does_something(function):
    """Say whether a function has a body; those of a Protocol have none."""
    return any(
        not (
            isinstance(node, ast.Pass)
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        )
        for node in function.body
    )


def has_logic(text):
    return any(
        does_something(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def modules_of(folder):
    return {p.stem: p for p in (ROOT / "codexdrv" / folder).glob("*.py") if p.stem != "__init__"}


def named_by_tests_of(folder):
    return {p.stem.removeprefix("test_") for p in (ROOT / "tests" / folder).glob("test_*.py")}


@pytest.mark.parametrize("folder", MIRRORED)
def test_every_test_file_has_its_module(folder):
    strays = {f"{folder}/{name}" for name in named_by_tests_of(folder) - modules_of(folder).keys()}
    assert strays - TESTS_OF_NO_MODULE == set()


@pytest.mark.parametrize("folder", MIRRORED)
def test_every_module_with_logic_has_its_test_file(folder):
    untested = {
        f"{folder}/{name}"
        for name, path in modules_of(folder).items()
        if name not in named_by_tests_of(folder) and has_logic(path.read_text("utf-8"))
    }
    assert untested - MODULES_WITHOUT_TEST == set()


def test_an_exception_that_is_no_longer_needed_goes():
    tests = {f"{folder}/{name}" for folder in MIRRORED for name in named_by_tests_of(folder)}
    modules = {f"{folder}/{name}" for folder in MIRRORED for name in modules_of(folder)}
    assert tests - modules >= TESTS_OF_NO_MODULE
    assert modules - tests >= MODULES_WITHOUT_TEST


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A = 1\nclass B(NamedTuple):\n    c: int\n", False),
        ('class B(Protocol):\n    def c(self):\n        """Say."""\n', False),
        ("class B(Protocol):\n    async def c(self): ...\n", False),
        ("class B:\n    def c(self):\n        return 1\n", True),
    ],
)
def test_declarations_are_no_logic(text, expected):
    assert has_logic(text) is expected
