"""A short torture: a dozen deliveries, three faults, and the truth of every witness."""

from pathlib import Path

import pytest

from tests.acceptance.binaries import BUNDLED, find_binary
from tests.torture.drill import torture
from tests.torture.judge import Count
from tests.torture.plan import Fault, Moment, Shot, Way, draw_inputs
from tests.torture.report import as_json, count_of, table


SHOTS = {
    2: Shot(Fault.REQUEST_CUT, Moment.ADMITTED, 0.0, 0.0),
    5: Shot(Fault.SERVER_KILLED, Moment.ANSWERED, 0.01, 0.0),
    9: Shot(Fault.SUPERVISOR_KILLED, Moment.ADMITTED, 0.05, 0.0),
}


@pytest.mark.timeout(60)
def test_a_short_torture_loses_doubles_and_disorders_nothing(tmp_path: Path):
    inputs = draw_inputs(7, Way.PROXY, deliveries=12, threads=4, faults=0)
    inputs = [each._replace(shot=SHOTS.get(number)) for number, each in enumerate(inputs)]
    toll = torture(
        tmp_path,
        binary=find_binary(BUNDLED).path,
        version=BUNDLED,
        way=Way.PROXY,
        inputs=inputs,
        seed=7,
    )
    assert toll.stories == []
    assert count_of(toll)[Count.SURFACED] + count_of(toll)[Count.GHOST] == 12
    assert toll.faults.total() == 3
    assert table([toll]).count("\n| ") == 2
    assert as_json(toll)["deliveries"] == 12
