"""The report shows what was counted, in tables."""

from collections import Counter

from tests.soak.faults import Struck
from tests.soak.laws import Toll
from tests.soak.plan import Fault, Mode
from tests.soak.report import report
from tests.soak.sampling import Sample, Size
from tests.torture.judge import Count, Ruling


def test_a_report_has_three_tables_and_what_was_broken():
    toll = Toll(
        version="0.171.0",
        mode=Mode.ATTACH,
        seed=7,
        took_s=3600.0,
        deliveries=2,
        rulings=[Ruling("a", Count.SURFACED), Ruling("b", Count.SURFACED)],
        struck=[
            Struck(Fault.DISK_FULL, 0.0, 20.0),
            Struck(Fault.LINK_CUT, 0.0, 30.0, "nothing there"),
        ],
        samples=[Sample(10.0 * n, Size(1, 34 * 1024, 13, 2, 10.0 * n), 1, 0, False)
                 for n in range(20)],
        surfaced_s=[22.0],
        refused=Counter({"73": 3}),
        sent_again=1,
        lives=2,
        broken=[],
    )  # fmt: skip
    said = report([toll], "make it so")
    assert "| 0.171.0 | attach | 7 | 60 min | 1 | 2 | 2 | 0 | 0 |" in said
    assert "| 1 | 3 x exit 73 | 2 |" in said
    assert "| disk full for 20 s | 1 | 2.0 / 2.0 / 2.0 s |" in said
    assert "| connection cut | 0 (1 missed) |  |" in said
    assert (
        "| attach, longest life | 20 | 34.0, 34.0 MiB | 34.0 MiB | 13, 13 | 2, 2 | 60 ms |" in said
    )
    assert "- attach: connection cut: nothing there" in said
    assert said.endswith("No law was broken.")
    broken = report([toll._replace(broken=["it died"])], "make it so")
    assert broken.endswith("Broken laws:\n- attach: it died")
