"""`list`: a line a delivery, oldest first."""

import pytest

from codexdrv.rules.ownership import Phase
from tests.fakes.orders import NOW_MS, OTHER_THREAD, THREAD, admit_in, make_order


@pytest.fixture
def full_desk(desk):
    """One delivery in each phase."""
    with desk.journal() as journal:
        for phase in Phase:
            admit_in(journal, phase, f"m-{phase}")
    return desk


def ids(ran):
    return [line.split()[2] for line in ran.out.splitlines()]


def test_an_empty_journal_is_listed_as_nothing(desk):
    for words in (["list"], ["list", "--json"], ["list", "--phase", "failed"]):
        ran = desk.run(*words)
        assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_deliveries_come_oldest_first(desk):
    with desk.journal() as journal:
        journal.admit(make_order("late", at_ms=NOW_MS + 1))
        journal.admit(make_order("early", thread=OTHER_THREAD, at_ms=NOW_MS))
        journal.admit(make_order("last", at_ms=NOW_MS + 2))
    assert ids(desk.run("list")) == ["early", "late", "last"]
    assert [body["id"] for body in desk.run("list", "--json").bodies] == ["early", "late", "last"]


def test_a_line_says_when_what_where_how_it_stands_and_how_it_begins(full_desk):
    lines = dict(zip(Phase, full_desk.run("list").out.splitlines(), strict=True))
    at = "2027-01-15T08:00:00.000Z"
    where = f"{THREAD}#"
    assert (
        lines[Phase.QUEUED] == f"{at}  queued/no_supervisor      {'m-queued':36}  {where}1  hello"
    )
    doubt = f"{at}  uncertain/in_doubt        {'m-uncertain':36}  {where}3  hello"
    assert lines[Phase.UNCERTAIN] == doubt
    surfaced = f"{at}  surfaced/running          {'m-surfaced':36}  {where}4  hello"
    assert lines[Phase.SURFACED] == surfaced


@pytest.mark.parametrize("phase", Phase)
def test_a_list_can_be_of_one_phase(full_desk, phase):
    assert ids(full_desk.run("list", "--phase", phase)) == [f"m-{phase}"]
    (body,) = full_desk.run("list", "--phase", phase, "--json").bodies
    assert (body["id"], body["phase"]) == (f"m-{phase}", phase)


def test_a_phase_that_does_not_exist_is_a_usage_error(desk):
    ran = desk.run("list", "--phase", "lost")
    assert ran.code == 2
    assert "invalid choice: 'lost'" in ran.sentence


def test_a_phase_that_we_do_not_know_is_listed_as_it_is(full_desk):
    with full_desk.journal() as journal:
        journal._database.execute("UPDATE deliveries SET phase = 'frozen' WHERE id = 'm-queued'")
    assert "m-queued  " in full_desk.run("list").out
    assert "  frozen  " in full_desk.run("list").out
    assert "frozen" in {body["phase"] for body in full_desk.run("list", "--json").bodies}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\t c\r\n", "a b c"),
        ("x" * 40, "x" * 40),
        ("x" * 41, "x" * 39 + "…"),
    ],
)
def test_a_message_is_shown_by_its_beginning_in_one_line(desk, text, shown):
    with desk.journal() as journal:
        journal.admit(make_order(text=text))
    (line,) = desk.run("list").out.splitlines()
    assert line.endswith(f"#1  {shown}")
