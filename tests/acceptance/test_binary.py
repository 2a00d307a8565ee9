"""The codex that people have installed is found behind its wrapper, and says its version."""

from codexdrv.binary import Binary, find_binary, read_version


def ways_to(codex: str) -> tuple[Binary, Binary]:
    """Find a binary as its installation offers it; return that, and what it should be."""
    prefix, by_npm, _ = codex.partition("/node_modules/")
    if not by_npm:
        return find_binary(codex, ""), Binary(codex, "the configuration", None)
    commands = f"{prefix}/node_modules/.bin"
    return find_binary(None, commands), Binary(codex, "PATH", f"{commands}/codex")


def test_the_native_program_of_each_installation_is_found(codex: str) -> None:
    found, expected = ways_to(codex)
    assert found == expected


def test_what_was_found_says_its_version(codex: str, version: str) -> None:
    found, _ = ways_to(codex)
    assert read_version(found.path) == version
