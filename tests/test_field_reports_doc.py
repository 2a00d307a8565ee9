"""Page and tests name each other: no row without a test that is there, no mark without its row."""

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest


ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "field-reports.md"
MARK = "pytest.mark.field_report"
# project#number, with the owner where the project's name alone says too little.
REPORT = re.compile(r"(?:[\w.-]+/)?[\w.-]+#\d+")
TEST = re.compile(r"- `(tests/\S+\.py::test_\w+)`")


class Row(NamedTuple):
    """One way to fail: who met it, what is said of it, and which tests show that we do not."""

    reports: tuple[str, ...]
    words: list[str]
    tests: list[str]


def rows_of(page):
    """Read the page: a heading of the third level begins a row."""
    rows = []
    for line in page.splitlines():
        if line.startswith("### "):
            rows.append(Row(tuple(line.removeprefix("### ").split(", ")), [], []))
        elif line.startswith("## "):
            rows.append(None)  # what follows a section's name belongs to no row
        elif rows and rows[-1] is not None and line:
            named = TEST.fullmatch(line)
            rows[-1].tests.append(named[1]) if named else rows[-1].words.append(line)
    return [row for row in rows if row is not None]


def reports_of(function):
    """Say which reports a test names."""
    calls = [each for each in function.decorator_list if isinstance(each, ast.Call)]
    marks = [each for each in calls if ast.unparse(each.func) == MARK]
    return [argument.value for mark in marks for argument in mark.args]


def each_test(tree):
    """Find the tests of a file; they are functions at its top."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_")]


@pytest.fixture(scope="module")
def rows():
    return rows_of(PAGE.read_text("utf-8"))


@pytest.fixture(scope="module")
def marked():
    """Every test of the project, and which reports it names."""
    return {
        f"{path.relative_to(ROOT)}::{test.name}": reports_of(test)
        for path in (ROOT / "tests").rglob("test_*.py")
        for test in each_test(ast.parse(path.read_text("utf-8")))
    }


def test_every_row_says_what_happened_what_we_do_and_which_tests_show_it(rows):
    assert rows
    for row in rows:
        assert all(REPORT.fullmatch(report) for report in row.reports), row.reports
        assert any(line.startswith("**Here:** ") for line in row.words[1:]), row.reports
        assert row.tests, row.reports


def test_no_report_has_two_rows(rows):
    named = [report for row in rows for report in row.reports]
    assert sorted(set(named)) == sorted(named)


def test_every_test_that_the_page_names_is_there(rows, marked):
    assert [test for row in rows for test in row.tests if test not in marked] == []


def test_page_and_tests_name_each_other(rows, marked):
    named = defaultdict(set)
    for row in rows:
        for test in row.tests:
            named[test].update(row.reports)
    assert dict(named) == {test: set(reports) for test, reports in marked.items() if reports}


def test_a_row_is_read_with_its_tests():
    page = """
# Title

### not#1

## Section

Words of no row.

### a/b#1, c#2

What happened.

**Here:** what we do.

- `tests/test_x.py::test_y`
- `tests/test_x.py::no_test`
"""
    _, row = rows_of(page)
    assert row == Row(
        ("a/b#1", "c#2"),
        ["What happened.", "**Here:** what we do.", "- `tests/test_x.py::no_test`"],
        ["tests/test_x.py::test_y"],
    )


def test_a_mark_is_read_wherever_it_stands_among_others():
    text = """
@pytest.mark.one_version
@pytest.mark.field_report("a#1", "b#2")
@pytest.mark.field_report("c#3")
async def test_x(): ...
def test_y(): ...
def helper(): ...
"""
    found = each_test(ast.parse(text))
    assert [(test.name, reports_of(test)) for test in found] == [
        ("test_x", ["a#1", "b#2", "c#3"]),
        ("test_y", []),
    ]
