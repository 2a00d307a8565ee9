"""What `status --openmetrics` prints: the machine, for Prometheus and its like."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from codexdrv.health import Machine, answered_ms
from codexdrv.rules.ownership import Phase


Family = GaugeMetricFamily | InfoMetricFamily

LIVE = (Phase.QUEUED, Phase.PENDING, Phase.UNCERTAIN)
"""Shown also where there are none: a series that comes and goes is hard to alarm on."""


def render(machine: Machine, problems: Sequence[str]) -> str:
    """Lay the machine out in OpenMetrics text, which ends with `# EOF`."""
    registry = CollectorRegistry()
    registry.register(_Picture(machine, problems))
    text: bytes = generate_latest(registry)
    return text.decode()


class _Picture(Collector):
    """All families, drawn once."""

    def __init__(self, machine: Machine, problems: Sequence[str]) -> None:
        self._machine = machine
        self._problems = problems

    def collect(self) -> Iterable[Family]:
        """Draw every family; what is not known is left out, never zero."""
        yield _gauge("healthy", "1 when nothing is wrong.", not self._problems)
        yield _gauge("problems", "How many things are wrong.", len(self._problems))
        yield _gauge("supervisor_up", "1 when a supervisor hears the bell.", self._machine.is_up)
        yield from self._deliveries()
        if not self._machine.is_stale:
            yield from self._server()

    def _deliveries(self) -> Iterator[Family]:
        summary, now_ms = self._machine.summary, self._machine.now_ms
        live = GaugeMetricFamily(
            "codexdrv_deliveries", "Live deliveries by phase.", labels=["phase"]
        )
        for phase in dict.fromkeys([*map(str, LIVE), *summary.live]):
            live.add_metric([phase], summary.live.get(phase, 0))
        yield live
        depths = GaugeMetricFamily(
            "codexdrv_thread_deliveries", "Live deliveries by thread.", labels=["thread"]
        )
        for thread, depth in summary.depths.items():
            depths.add_metric([thread], depth)
        yield depths
        admitted_ms = summary.oldest.order.admitted_at_ms if summary.oldest else now_ms
        age_s = max(0, now_ms - admitted_ms) / 1000
        yield _gauge("oldest_delivery_age_seconds", "0 when none is live.", age_s)

    def _server(self) -> Iterator[Family]:
        snapshot, now_ms = self._machine.snapshot, self._machine.now_ms
        if snapshot is None:
            return
        body, server = snapshot.body, snapshot.body["server"]
        uptime_s = (now_ms - body["began_at_ms"]) / 1000
        yield _gauge("supervisor_uptime_seconds", "Age of this life.", uptime_s)
        yield _gauge("supervisor_life", "The number of this life.", body["life"])
        yield _gauge("server_connected", "1 when the connection stands.", server["connected"])
        yield _gauge("server_restarts", "Other server processes in this life.", server["restarts"])
        yield _gauge("server_generation", "Connections in this life.", server["generation"])
        yield _gauge("server_outdated", "1 when another codex lies on disk.", server["outdated"])
        if (unanswered_ms := answered_ms(snapshot, now_ms)) is not None:
            help_text = "Since the server last answered a request."
            yield _gauge("server_last_answer_age_seconds", help_text, unanswered_ms / 1000)
            about = InfoMetricFamily("codexdrv_server", "The server that is connected.")
            about.add_metric([], {"version": server["version"] or "", "pid": str(server["pid"])})
            yield about
        subscribed = GaugeMetricFamily(
            "codexdrv_thread_subscribed", "1 when its turns reach us.", labels=["thread", "target"]
        )
        for thread, state in body["threads"].items():
            is_subscribed = state["subscription"] == "subscribed"
            subscribed.add_metric([thread, ",".join(state["targets"])], is_subscribed)
        yield subscribed
        yield _gauge("questions_open", "Questions that wait.", len(body["questions"]))
        since_ms = min((each["since_ms"] for each in body["questions"]), default=now_ms)
        age_s = max(0, now_ms - since_ms) / 1000
        yield _gauge("oldest_question_age_seconds", "0 when none is open.", age_s)


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"codexdrv_{name}", help_text, value=float(value))
