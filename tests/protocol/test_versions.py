import pytest

from codexdrv.protocol.versions import TESTED, server_version


@pytest.mark.parametrize("version", TESTED)
@pytest.mark.parametrize("client", ["codexdrv", "a/b client", "codex_vscode"])
def test_the_version_is_read_whoever_greeted_the_server_first(client, version):
    agent = f"{client}/{version} (Debian 12.0.0; x86_64) xterm (codexdrv; 0.1.0)"
    assert server_version(agent) == version


def test_a_version_of_tomorrow_is_read_as_it_is():
    assert server_version("codexdrv/1.0.0-alpha.3 (Linux)") == "1.0.0-alpha.3"


def test_an_agent_without_a_version_has_none():
    assert server_version("something else") is None
