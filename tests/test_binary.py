"""Which codex is started: the named one, the first on PATH, the bundled one; never a wrapper."""

import json
import os

import codex_cli_bin
import pytest

from codexdrv.binary import (
    BUNDLE,
    GET_BUNDLED,
    MACHINE,
    Binary,
    bundled_binary,
    find_binary,
    read_version,
)
from codexdrv.errors import ConfigurationError, ExitCode, NoCodex


ELF = b"\x7fELF and so on"
NO_BUNDLE = "no_such_bundle"
X64, ARM = (
    ("codex-linux-x64", "x86_64-unknown-linux-musl"),
    ("codex-linux-arm64", "aarch64-unknown-linux-musl"),
)

# As pnpm 10 writes it.
SHIM = """#!/bin/sh
basedir=$(dirname "$(echo "$0" | sed -e 's,\\\\,/,g')")

case `uname` in
    *CYGWIN*|*MINGW*|*MSYS*)
        if command -v cygpath > /dev/null 2>&1; then
            basedir=`cygpath -w "$basedir"`
        fi
    ;;
esac

if [ -z "$NODE_PATH" ]; then
  export NODE_PATH="/p/node_modules/.pnpm/node_modules"
else
  export NODE_PATH="/p/node_modules/.pnpm/node_modules:$NODE_PATH"
fi
if [ -x "$basedir/node" ]; then
  exec "$basedir/node"  "$basedir/{target}" "$@"
else
  exec node  "$basedir/{target}" "$@"
fi
"""
PNPM = "node_modules/.pnpm/@openai+codex@0.144.5/node_modules"


def executable(path, content=ELF):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o755)
    return str(path)


def package(path, **said):
    path.mkdir(parents=True, exist_ok=True)
    (path / "package.json").write_text(json.dumps(said))
    return path


def wrapper_in(modules, name="@openai/codex"):
    """Install npm's package without any program; return its script."""
    root = package(modules / "@openai" / "codex", name=name)
    return executable(root / "bin" / "codex.js", "#!/usr/bin/env node\n")


def platform_in(modules, platform=X64, layout="bin/codex"):
    """Install what npm installs for one kind of machine; return the program."""
    name, triple = platform
    root = package(modules / "@openai" / name, name="@openai/codex")
    return executable(root / "vendor" / triple / layout)


@pytest.fixture
def bin_path(tmp_path):
    """A directory that is all of PATH."""
    path = tmp_path / "bin"
    path.mkdir()
    return path


@pytest.fixture
def linked(tmp_path, bin_path):
    """The directory `node_modules` whose wrapper is linked to be the codex on PATH."""
    modules = tmp_path / "lib" / "node_modules"
    (bin_path / "codex").symlink_to(wrapper_in(modules))
    return modules


def on_path(*directories, machine="x86_64", bundle=NO_BUNDLE):
    return find_binary(None, ":".join(map(str, directories)), bundle, machine=machine)


def refusal(*directories, **options):
    with pytest.raises(ConfigurationError) as caught:
        on_path(*directories, **options)
    assert caught.value.exit_code is ExitCode.CONFIGURATION
    assert caught.value.hint
    return caught.value.message


# The order


def test_the_named_one_comes_first(tmp_path, bin_path):
    executable(bin_path / "codex")
    named = executable(tmp_path / "opt" / "my-own")
    assert find_binary(named, str(bin_path)) == Binary(named, "the configuration", None)


def test_then_the_first_on_path(tmp_path):
    first, second = executable(tmp_path / "a" / "codex"), executable(tmp_path / "b" / "codex")
    found = on_path(tmp_path / "none", tmp_path / "a", tmp_path / "b", bundle=BUNDLE)
    assert found == Binary(first, "PATH", None)
    assert on_path(tmp_path / "b", tmp_path / "a").path == second


def test_then_the_bundled_one(bin_path):
    found = on_path(bin_path, bundle=BUNDLE)
    assert found == Binary(bundled_binary(), "the bundled package", None)


def test_then_none_and_it_says_what_was_looked_at(bin_path):
    with pytest.raises(NoCodex) as caught:
        on_path("/nonexistent/bin", "relative", bin_path)
    assert caught.value.message == (
        f"There is no executable codex on PATH (/nonexistent/bin, {bin_path}). "
        "There is no bundled codex binary: no package no_such_bundle."
    )
    assert GET_BUNDLED in caught.value.hint
    assert "under [server]" in caught.value.hint
    assert caught.value.exit_code is ExitCode.UNAVAILABLE


def test_a_path_without_a_directory_is_called_so():
    with pytest.raises(NoCodex, match=r"on PATH \(it names no absolute directory\)"):
        find_binary(None, "", NO_BUNDLE)


# PATH


@pytest.mark.parametrize("entry", ["", ".", "bin", "./bin"])
def test_an_empty_or_relative_entry_is_ignored(tmp_path, monkeypatch, entry):
    executable(tmp_path / "codex")
    executable(tmp_path / "bin" / "codex")
    right = executable(tmp_path / "right" / "codex")
    monkeypatch.chdir(tmp_path)
    assert on_path(entry, tmp_path / "right").path == right


def test_what_a_shell_would_pass_over_is_passed_over(tmp_path):
    (tmp_path / "a" / "codex").mkdir(parents=True)
    os.chmod(executable(tmp_path / "b" / "codex"), 0o644)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "codex").symlink_to("gone")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "codex").symlink_to("codex")
    right = executable(tmp_path / "e" / "codex")
    assert on_path(*(tmp_path / name for name in "abcde")).path == right


def test_a_link_to_a_native_codex_stays_a_link_so_that_an_update_is_followed(tmp_path, bin_path):
    (bin_path / "codex").symlink_to(executable(tmp_path / "codex-x86_64-unknown-linux-musl"))
    assert on_path(bin_path) == Binary(f"{bin_path}/codex", "PATH", None)


@pytest.mark.parametrize("content", ['#!/bin/sh\nexec /opt/codex "$@"\n', "", "\x7fEL"])
def test_what_is_no_program_is_not_guessed_at_and_nothing_is_taken_in_its_place(
    tmp_path, bin_path, content
):
    script = executable(bin_path / "codex", content)
    executable(tmp_path / "later" / "codex")
    assert refusal(bin_path, tmp_path / "later", bundle=BUNDLE) == (
        f"{script} (from PATH) is neither a native codex nor the wrapper of npm's package."
    )


def test_a_launcher_that_goes_by_the_name_of_its_link_is_refused(tmp_path, bin_path):
    shim = executable(tmp_path / "volta-shim")
    (bin_path / "codex").symlink_to(shim)
    assert refusal(bin_path) == (
        f"{bin_path}/codex (from PATH) is a link to {shim}, which looks like a launcher of codex."
    )
    assert find_binary(shim, "").path == shim


# The named one


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none", "cannot be used: No such file or directory."),
        ("dangling", "cannot be used: No such file or directory."),
        ("directory", "is not an executable file."),
        ("plain", "is not an executable file."),
        ("script", "is neither a native codex nor the wrapper of npm's package."),
    ],
)
def test_a_named_one_that_cannot_be_started_is_a_mistake_in_the_configuration(
    tmp_path, bin_path, name, said
):
    (tmp_path / "dangling").symlink_to("none")
    (tmp_path / "directory").mkdir()
    (tmp_path / "plain").write_bytes(ELF)
    executable(tmp_path / "script", "#!/bin/sh\n")
    executable(bin_path / "codex")
    with pytest.raises(ConfigurationError) as caught:
        find_binary(str(tmp_path / name), str(bin_path))
    assert f"{tmp_path}/{name} " in caught.value.message
    assert caught.value.message.endswith(said)
    assert "under [server]" in caught.value.hint
    assert caught.value.exit_code is ExitCode.CONFIGURATION


def test_a_named_wrapper_is_followed_too(linked):
    native = platform_in(linked)
    script = str(linked / "@openai/codex/bin/codex.js")
    assert find_binary(script, "", machine="x86_64") == Binary(native, "the configuration", script)


# The wrapper of npm's package


@pytest.mark.parametrize("layout", ["bin/codex", "codex/codex"])
@pytest.mark.parametrize(("machine", "platform"), [("x86_64", X64), ("aarch64", ARM)])
def test_the_program_beside_the_wrapper_is_the_one_for_this_machine(
    linked, bin_path, machine, platform, layout
):
    found = {platform: platform_in(linked, platform, layout) for platform in (X64, ARM)}
    wrapper = f"{bin_path}/codex"
    assert on_path(bin_path, machine=machine) == Binary(found[platform], "PATH", wrapper)


def test_a_nested_program_comes_before_one_beside(linked, bin_path):
    platform_in(linked)
    nested = platform_in(linked / "@openai" / "codex" / "node_modules")
    assert on_path(bin_path).path == nested


def test_the_program_may_be_further_up_as_node_looks_for_it(tmp_path, linked, bin_path):
    above = platform_in(tmp_path / "node_modules")
    assert on_path(bin_path).path == above


@pytest.mark.parametrize("layout", ["bin/codex", "codex/codex"])
def test_an_older_package_holds_the_program_itself(linked, bin_path, layout):
    native = executable(linked / "@openai/codex/vendor" / X64[1] / layout)
    assert on_path(bin_path).path == native


def test_a_wrapper_without_its_program_says_where_it_should_be(linked, bin_path):
    vendor = f"{linked}/@openai/codex/vendor/{X64[1]}"
    assert refusal(bin_path, bundle=BUNDLE) == (
        f"{bin_path}/codex is the wrapper of npm's package, and its native program is not there:"
        f" neither {vendor}/bin/codex nor {vendor}/codex/codex is one."
    )


def test_the_program_of_another_machine_will_not_do(linked, bin_path):
    platform_in(linked, ARM)
    assert "its native program is not there" in refusal(bin_path)


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_program_that_is_none_will_not_do(linked, bin_path, mode):
    native = platform_in(linked)
    with open(native, "wb") as file:
        file.write(ELF if mode == 0o644 else b"#!/bin/sh\n")
    os.chmod(native, mode)
    assert "its native program is not there" in refusal(bin_path)


def test_a_machine_that_npm_has_no_program_for_is_named(linked, bin_path):
    platform_in(linked)
    assert refusal(bin_path, machine="riscv64") == (
        f"{bin_path}/codex is the wrapper of npm's package, which has no program for riscv64."
    )


@pytest.mark.parametrize("said", ['{"name": "codex-fork"}', '["@openai/codex"]', "{", "\xff", None])
def test_only_the_name_of_its_package_makes_a_script_the_wrapper(linked, bin_path, said):
    platform_in(linked)
    manifest = linked / "@openai" / "codex" / "package.json"
    manifest.unlink()
    if said is not None:
        manifest.write_text(said, "latin-1")
    assert "neither a native codex nor the wrapper" in refusal(bin_path)


# The shim of pnpm


def test_a_shim_of_pnpm_is_followed_to_the_wrapper_and_that_to_the_program(tmp_path):
    script = wrapper_in(tmp_path / PNPM)
    native = platform_in(tmp_path / PNPM)
    target = os.path.relpath(script, tmp_path / "node_modules/.bin")
    shim = executable(tmp_path / "node_modules/.bin/codex", SHIM.replace("{target}", target))
    assert on_path(tmp_path / "node_modules/.bin") == Binary(native, "PATH", shim)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("/bin/codex.js", "/other/bin/codex.js", 1),
        lambda text: text.replace("/bin/codex.js", "/$CHOICE/bin/codex.js"),
        lambda text: text.replace("/bin/codex.js", "/bin/other.js"),
        lambda text: text.replace('"$@"', "--yolo"),
        lambda text: text.replace("#!/bin/sh\n", "#!/bin/sh\nexport TOKEN=x\n"),
        lambda text: text + "#" * 65536,
    ],
)
def test_a_script_that_only_resembles_a_shim_is_not_guessed_at(tmp_path, bin_path, change):
    wrapper_in(tmp_path / PNPM)
    platform_in(tmp_path / PNPM)
    text = SHIM.replace("{target}", f"../{PNPM}/@openai/codex/bin/codex.js")
    executable(bin_path / "codex", text)
    assert on_path(bin_path).wrapper == f"{bin_path}/codex"
    executable(bin_path / "codex", change(text))
    assert "neither a native codex nor the wrapper" in refusal(bin_path)


# The bundled one


def test_the_bundled_codex_is_the_one_that_its_package_says():
    assert bundled_binary() == str(codex_cli_bin.bundled_codex_path())


def test_a_missing_bundle_says_what_to_install():
    with pytest.raises(NoCodex, match="no package no_such_bundle") as caught:
        bundled_binary(NO_BUNDLE)
    assert caught.value.hint == f"Install it: {GET_BUNDLED}"
    assert caught.value.exit_code is ExitCode.UNAVAILABLE
    assert not caught.value.retryable


def test_a_bundle_without_its_program_says_where_it_should_be():
    path = os.path.join(os.path.dirname(json.__file__), "bin", "codex")
    with pytest.raises(NoCodex) as caught:
        bundled_binary("json")
    assert caught.value.message == (
        f"There is no bundled codex binary: {path} is no native executable."
    )


def test_a_module_is_no_bundle():
    with pytest.raises(NoCodex):
        bundled_binary("stat")


def test_this_machine_is_the_default():
    assert os.uname().machine == MACHINE


# The version


def test_the_bundled_codex_says_its_version():
    assert read_version(bundled_binary()) == "0.163.0"


def test_it_is_asked_with_nothing_of_ours_and_no_home_to_write_to(tmp_path):
    asked = executable(
        tmp_path / "codex",
        '#!/bin/sh\n[ "$1$HOME" = --version ] && ! mkdir -p "$CODEX_HOME/tmp" 2>/dev/null'
        " && ! read line && echo codex-cli 1.2.3-alpha.1\n",
    )
    assert read_version(asked) == "1.2.3-alpha.1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo Python 3.11.2", "does not say its version, but 'Python 3.11.2"),
        ("echo no such option >&2; exit 2", "does not say its version, but 'no such option"),
        ("printf '\\377'", "does not say its version, but '\N{REPLACEMENT CHARACTER}'"),
        ("kill -9 $$", "does not say its version, but ''"),
    ],
)
def test_what_does_not_say_its_version_is_quoted(tmp_path, text, said):
    path = executable(tmp_path / "codex", f"#!/bin/sh\n{text}\n")
    with pytest.raises(NoCodex) as caught:
        read_version(path)
    assert caught.value.message.startswith(f"{path} {said}")
    assert caught.value.hint


def test_a_program_of_another_machine_does_not_run(tmp_path):
    path = executable(tmp_path / "codex")
    with pytest.raises(NoCodex, match=r"does not run: .*Exec format error"):
        read_version(path)


def test_one_that_does_not_answer_is_ended_and_said_to_be_late(tmp_path):
    path = executable(tmp_path / "codex", "#!/bin/sh\nexec /bin/sleep 1000\n")
    with pytest.raises(NoCodex, match=r"does not run: .*timed out after 0.05 seconds"):
        read_version(path, timeout_s=0.05)
