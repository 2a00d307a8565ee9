import ast
import json
import runpy
from pathlib import Path

import pytest

from tests.acceptance.binaries import VERSIONS


ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
# By path: `docs` is no package, and no name that we want to own.
RENDER = runpy.run_path(str(DOCS / "render_compatibility.py"))["render"]


@pytest.fixture(scope="module")
def cells():
    return json.loads((DOCS / "compatibility.json").read_text("utf-8"))


def test_the_page_is_what_the_cells_say_now():
    page = (DOCS / "compatibility.md").read_text("utf-8")
    assert page == RENDER(), "run: make compatibility"


def test_every_behaviour_was_seen_on_every_version(cells):
    assert {tuple(row["cells"]) for row in cells.values()} == {VERSIONS}
    assert all(cell for row in cells.values() for cell in row["cells"].values())


def test_every_row_has_its_test_and_every_test_its_row(cells):
    text = (ROOT / "tests/acceptance/test_compatibility.py").read_text("utf-8")
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    titles = {
        node.name.removeprefix("test_"): ast.get_docstring(node)
        for node in found
        if node.name.startswith("test_")
    }
    assert {name: row["title"] for name, row in cells.items()} == titles


def test_what_is_dropped_in_a_compaction_is_never_called_surfaced(cells):
    ends = cells["race_with_compaction"]["cells"]
    assert ends["0.144.5"].endswith("proved absent (quiet) → surfaced, completed")
    assert all("surfaced" in ends[version] for version in VERSIONS[1:])
