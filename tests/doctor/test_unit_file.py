"""Units on disk: which one counts, and what its lines mean."""

import pytest

from codexdrv.doctor.unit_file import (
    NAME,
    expand,
    find_units,
    load_settings,
    merge_settings,
    read_command,
    read_environment,
    split_words,
    user_places,
)


def settings_of(*texts):
    settings: dict[str, list[str]] = {}
    for text in texts:
        merge_settings(settings, text)
    return settings


def place(root, name, *files):
    directory = root / name
    for file in files:
        path = directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"[Service]\nA={name}/{file}\n")
    return str(directory)


# What a file says


def test_a_key_gathers_its_values_and_an_empty_one_begins_anew():
    assert settings_of(
        "[Unit]\nA=0\n[Service]\nA=1\n A = 2 \nB=x\n[Install]\nB=y", "[Service]\nA=\nA=3\nB="
    ) == {"A": ["3"], "B": []}


def test_lines_go_on_and_comments_are_none():
    text = "[Service]\n# A=0\n; A=0\n\nA=one \\\n# between\n  two\\\nthree\nB=b\\\\\nC=c\\"
    assert settings_of(text) == {"A": ["one  two three"], "B": ["b\\\\"], "C": ["c"]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        ("\"a b\" 'c d'", ["a b", "c d"]),
        ("A=\"b c\" d'e'f", ["A=b c", "def"]),
        (r"a\x20b \"c\" d\\e \s\t \101 \q", ["a b", '"c"', "d\\e", " \t", "A", r"\q"]),
        (r'"a\"b" "c\\"', ['a"b', "c\\"]),
        ('""', [""]),
        ("", []),
    ],
)
def test_a_value_is_split_into_words(text, words):
    assert split_words(text) == words


def test_specifiers_stand_for_what_is_known():
    assert expand("%h/%u %% %t %", {"h": "/home/me", "u": "me"}) == "/home/me/me % %t %"


@pytest.mark.parametrize(
    ("value", "command"),
    [
        ("/bin/x -a", ("/bin/x", "-a")),
        ("-@/bin/x $$a %h", ("/bin/x", "$a", "/home/me")),
        (":/bin/x $$a", ("/bin/x", "$$a")),
        ('"/a b/x" "c d"', ("/a b/x", "c d")),
        ("", ("",)),
    ],
)
def test_a_command_is_read(value, command):
    assert read_command(value, {"h": "/home/me"}) == command


def test_variables_come_from_lines_and_then_from_files(tmp_path):
    (tmp_path / "some env").write_text("# no\nA=from file\nB=\"b c\"\nnonsense\n C = 'd' \n")
    settings = {
        "Environment": ['"A=x y" Z=%h', "Y=1", "nonsense"],
        "EnvironmentFile": [f"-{tmp_path}/some env", "-/nonexistent"],
    }
    assert read_environment(settings, {"h": "/home/me"}) == {
        "A": "from file",
        "B": "b c",
        "C": "d",
        "Y": "1",
        "Z": "/home/me",
    }


# Which file


def test_the_best_place_counts_and_drop_ins_change_it_in_the_order_of_their_names(tmp_path):
    best = place(tmp_path, "best", NAME, f"{NAME}.d/20.conf", f"{NAME}.d/30.conf")
    worse = place(
        tmp_path, "worse", NAME, f"{NAME}.d/10.conf", f"{NAME}.d/20.conf", f"{NAME}.d/no.txt"
    )
    (unit,) = find_units([f"{tmp_path}/nowhere", best, worse], [])
    assert (unit.path, unit.is_user, unit.is_enabled) == (f"{best}/{NAME}", True, False)
    assert load_settings(unit) == {
        "A": [
            f"best/{NAME}",
            f"worse/{NAME}.d/10.conf",
            f"best/{NAME}.d/20.conf",
            f"best/{NAME}.d/30.conf",
        ]
    }


def test_there_may_be_one_of_the_user_and_one_of_the_system(tmp_path):
    user, system = place(tmp_path, "user", NAME), place(tmp_path, "system", NAME)
    assert [unit.is_user for unit in find_units([user], [system])] == [True, False]
    assert find_units([str(tmp_path)], [str(tmp_path)]) == []


def test_one_that_is_wanted_by_another_is_enabled(tmp_path):
    user = place(tmp_path, "user", NAME)
    wants = tmp_path / "user" / "default.target.wants"
    wants.mkdir()
    (wants / NAME).symlink_to(f"{user}/{NAME}")
    assert find_units([user], [])[0].is_enabled


@pytest.mark.parametrize("kind", ["empty", "link"])
def test_a_masked_one_is_seen(tmp_path, kind):
    user = place(tmp_path, "user", "other")
    path = tmp_path / "user" / NAME
    if kind == "empty":
        path.touch()
    else:
        path.symlink_to("/dev/null")
    assert find_units([user], [])[0].is_masked


def test_the_users_places_are_systemds():
    environment = {"XDG_CONFIG_HOME": "/cfg", "XDG_DATA_HOME": "relative"}
    places = user_places(environment, "/home/me")
    assert places[:3] == [
        "/cfg/systemd/user",
        "/home/me/.config/systemd/user",
        "/etc/systemd/user",
    ]
    assert "/home/me/.local/share/systemd/user" in places
    assert places[-1] == "/usr/lib/systemd/user"
