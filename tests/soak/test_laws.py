"""What holds at the end of a soak, and what does not."""

from collections import Counter

import pytest

from tests.soak.faults import Struck
from tests.soak.laws import (
    Growth,
    Toll,
    calm_sizes,
    find_broken,
    growth_of,
    longest_life,
    recoveries,
)
from tests.soak.plan import Fault, Mode
from tests.soak.sampling import Sample, Size
from tests.torture.judge import Count, Ruling


def size(rss_kib: int = 34_000, *, pid: int = 1, descriptors: int = 13, threads: int = 2) -> Size:
    return Size(pid, rss_kib, descriptors, threads, 0.0)


def sample(of: Size | None, *, orphans: int = 0, is_disturbed: bool = False) -> Sample:
    return Sample(0.0, of, 1 + orphans, orphans, is_disturbed)


def toll(**changes) -> Toll:
    blank = Toll(
        "0.171.0", Mode.ATTACH, 1, 60.0, 0, [], [], [], [], Counter(), sent_again=0, lives=1,
        broken=[],
    )  # fmt: skip
    return blank._replace(**changes)


def struck(fault: Fault, to_s: float, missed: str = "") -> Struck:
    return Struck(fault, to_s - 1, to_s, missed)


def test_the_second_quarter_is_held_against_the_last():
    values = [90.0] * 4 + [1.0, 2.0, 3.0, 4.0] + [50.0] * 4 + [7.0, 8.0, 9.0, 100.0]
    assert growth_of(values) == Growth(2.5, 8.5)
    assert growth_of(values[:11]) is None


@pytest.mark.parametrize(
    ("after", "is_flat"), [(100.0, True), (10.0, True), (112.0, True), (112.1, False)]
)
def test_flat_is_what_grows_by_a_share_and_some_slack_at_most(after: float, is_flat: bool):
    assert Growth(100.0, after).is_flat(share=0.10, slack=2.0) == is_flat


def test_calm_sizes_are_those_that_no_fault_has_disturbed():
    samples = [sample(size(1)), sample(None), sample(size(2), is_disturbed=True)]
    assert calm_sizes(samples) == [size(1)]


def test_the_longest_life_is_the_one_that_was_seen_most_often():
    lives = [size(pid=1), size(pid=2), size(pid=2)]
    assert longest_life([sample(each, is_disturbed=True) for each in lives]) == lives[1:]
    assert longest_life([]) == []


def test_recovery_is_from_the_end_of_a_fault_to_the_next_delivery():
    faults = [
        struck(Fault.DISK_FULL, 10),
        struck(Fault.DISK_FULL, 20),
        struck(Fault.LINK_CUT, 30, "not connected"),
        struck(Fault.RESTARTED, 40),
    ]
    found = recoveries(faults, [9.0, 11.0, 25.0, 33.0])
    assert found == {Fault.DISK_FULL: [1.0, 5.0], Fault.RESTARTED: [float("inf")]}


def test_a_soak_in_which_all_went_well_breaks_no_law():
    samples = [sample(size(34_000 + number)) for number in range(40)]
    rulings = [Ruling("a", Count.SURFACED), Ruling("b", Count.GHOST), Ruling("c", Count.UNCERTAIN)]
    assert find_broken(toll(samples=samples, rulings=rulings)) == []


def test_each_broken_law_is_told_in_words():
    growing = [
        sample(size(34_000 + 400 * number, descriptors=number), orphans=int(number == 7))
        for number in range(40)
    ]
    lost = [Ruling("a", Count.LOST, "it is nowhere")]
    never = [struck(Fault.DISK_FULL, 10)]
    found = find_broken(toll(samples=growing, rulings=lost, struck=never, broken=["it died"]))
    assert found == [
        "it died",
        "a: lost: it is nowhere",
        "1 servers of nobody's at 0",
        "RSS in KiB across lives grew from 39800 to 47800",
        "descriptors across lives grew from 14 to 34",
        "RSS in KiB of one life grew from 39800 to 47800",
        "descriptors of one life grew from 14 to 34",
        "nothing surfaced any more after: disk full for 20 s",
    ]


def test_a_server_of_nobodys_is_looked_for_when_all_is_calm():
    assert find_broken(toll(samples=[sample(size(), orphans=1, is_disturbed=True)])) == []
