import runpy
from pathlib import Path

import pytest

from codexdrv.rules.ownership import Fact, Phase
from codexdrv.rules.routing import RULES


DOCS = Path(__file__).parent.parent / "docs"
# By path: `docs` is no package, and no name that we want to own.
RENDER = runpy.run_path(str(DOCS / "render_states.py"))["render"]


@pytest.fixture(scope="module")
def page():
    return (DOCS / "states.md").read_text("utf-8")


def rows_after(page, heading):
    lines = page.split(heading, 1)[1].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| "))
    rows = []
    for line in lines[first:]:
        if not line.startswith("| "):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_page_is_what_the_tables_say_now(page):
    assert page == RENDER(), "run: python docs/render_states.py"


def test_the_page_shows_every_phase_and_every_fact(page):
    head, _, *rows = rows_after(page, "## Who owns a message")
    assert [word.strip("*") for word in head[1:-1]] == list(Phase)
    assert [row[0] for row in rows] == list(Fact)
    assert all(len(row) == len(head) and all(row) for row in rows)


def test_the_page_shows_every_rule_in_order(page):
    head, _, *rows = rows_after(page, "## What is done with the message")
    assert [row[-1] for row in rows] == [rule.why for rule in RULES]
    assert [row[-3] for row in rows] == [rule.action for rule in RULES]
    assert all(len(row) == len(head) and all(row) for row in rows)
