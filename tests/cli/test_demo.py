"""`demo` where its codex is missing; what it shows with one is in acceptance."""

import os


def test_without_its_codex_it_says_how_a_checkout_installs_that(desk):
    # The package of the extra, without its binary.
    empty = desk.root / "packages" / "codex_cli_bin"
    empty.mkdir(parents=True)
    (empty / "__init__.py").touch()
    environment = desk.environment()
    environment["PYTHONPATH"] = os.pathsep.join((str(empty.parent), environment["PYTHONPATH"]))
    ran = desk.call("demo", env=environment)
    assert (ran.code, ran.out) == (69, "")
    assert ran.sentence.startswith("There is no bundled codex binary")
    assert "`pip install '.[codex]'` in the checkout" in ran.err
