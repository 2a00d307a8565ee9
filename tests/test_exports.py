"""What `import codexdrv` offers is what it says, and it costs nothing until it is used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import codexdrv


def type_checked_imports() -> dict[str, str]:
    tree = ast.parse(Path(codexdrv.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


def test_the_lazy_names_are_those_that_type_checkers_see():
    assert type_checked_imports() == codexdrv._HOMES
    assert set(codexdrv.__all__) == {"__version__", *codexdrv._HOMES}


@pytest.mark.parametrize("name", codexdrv.__all__)
def test_every_public_name_is_there(name: str):
    assert getattr(codexdrv, name) is not None
    assert name in dir(codexdrv)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = codexdrv.nothing


def test_importing_the_package_loads_none_of_its_modules():
    code = "import codexdrv, sys; print([m for m in sys.modules if m.startswith('codexdrv.')])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(codexdrv.__file__).parents[1],
    )
    assert done.stdout.strip() == "[]"
