"""The binaries come from npm once, whoever asks at the same time; here npm is a shell script."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.binaries import BUNDLED, VERSIONS, by_version


CHECKOUT = Path(__file__).parents[2]
BY_NPM = tuple(version for version in VERSIONS if version != BUNDLED)

NPM = """#!/bin/sh
# Called as: npm install FLAGS --prefix DIR @openai/codex@VERSION
for last; do :; done
bin="$PWD/node_modules/@openai/codex-some-cpu/vendor/some-triple/bin"
mkdir -p "$bin"
printf '#!/bin/sh\\necho codex-cli %s\\n' "${SAYS:-${last##*@}}" > "$bin/codex"
chmod +x "$bin/codex"
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "bin").mkdir()
    npm = tmp_path / "bin" / "npm"
    npm.write_text(NPM)
    npm.chmod(0o755)

    def start(*flags, path="bin", **environment):
        return subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.binaries", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=CHECKOUT,
            env={
                "PATH": f"{tmp_path / path}:/usr/bin:/bin" if path else "",
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
                **environment,
            },
        )

    return start


def kept(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache" / "codexdrv-tests").glob("*"))


def test_two_that_install_at_once_leave_one_of_each_version(run, tmp_path):
    both = [run(), run()]
    said = [child.communicate()[0] for child in both]
    assert [child.returncode for child in both] == [0, 0]
    assert said[0] == said[1]
    assert kept(tmp_path) == [f"codex-{version}" for version in BY_NPM]


def test_what_says_that_it_is_another_version_is_not_kept(run, tmp_path):
    child = run(SAYS="9.9.9")
    said, _ = child.communicate()
    assert child.returncode == 1
    assert said.count("says that it is 9.9.9, not") == len(BY_NPM)
    assert kept(tmp_path) == []


@pytest.mark.parametrize(("flags", "code"), [((), 1), (("--try",), 0)])
def test_without_npm_it_says_what_is_missing(run, flags, code):
    child = run(*flags, path=None)
    said, _ = child.communicate()
    assert child.returncode == code
    assert said.count("there is no npm") == len(BY_NPM)


def test_a_version_that_no_row_names_is_like_the_newest_before_it():
    cells = {"0.144.5": "old", "0.163.0": "new"}
    found = [by_version(cells, version) for version in ("0.144.5", "0.150.0", "0.163.0", "1.2.3-a")]
    assert found == ["old", "old", "new", "new"]
