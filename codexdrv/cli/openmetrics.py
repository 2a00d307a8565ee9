"""What `status --openmetrics` prints: the machine, for Prometheus and its like.

It is read in two formats: as OpenMetrics, and, by node_exporter's textfile collector, as Prometheus
text 0.0.4, which knows no type `info`. So everything is a gauge.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from codexdrv.health import Machine, answered_ms
from codexdrv.rules.ownership import Phase


LIVE = (Phase.QUEUED, Phase.PENDING, Phase.UNCERTAIN)
"""Shown also where there are none: a series that comes and goes is hard to alarm on."""


def render(machine: Machine, problems: Sequence[object]) -> str:
    """Lay the machine out in OpenMetrics text, which ends with `# EOF`."""
    return _lay_out(_Picture(machine, problems))


def render_unknown() -> str:
    """Lay out that it is not well, where nothing more is known: it could not be looked at."""
    return _lay_out(_Unknown())


def _lay_out(families: Collector) -> str:
    registry = CollectorRegistry()
    registry.register(families)
    text: bytes = generate_latest(registry)
    return text.decode()


class _Unknown(Collector):
    """Only that something is wrong."""

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Draw the one family that is alarmed on."""
        yield _healthy(is_healthy=False)


class _Picture(Collector):
    """All families, drawn once."""

    def __init__(self, machine: Machine, problems: Sequence[object]) -> None:
        self._machine = machine
        self._problems = problems

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Draw every family; what is not known is left out, never zero."""
        yield _healthy(is_healthy=not self._problems)
        yield _gauge("problems", "How many things are wrong.", len(self._problems))
        yield _gauge("supervisor_up", "1 when a supervisor hears the bell.", self._machine.is_up)
        yield from self._deliveries()
        if not self._machine.is_stale:
            yield from self._server()

    def _deliveries(self) -> Iterator[GaugeMetricFamily]:
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

    def _server(self) -> Iterator[GaugeMetricFamily]:
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
        subscribed = GaugeMetricFamily(
            "codexdrv_thread_subscribed", "1 when its turns reach us.", labels=["thread", "target"]
        )
        for thread, state in body["threads"].items():
            is_subscribed = state["subscription"] == "subscribed"
            subscribed.add_metric([thread, ",".join(state["targets"])], is_subscribed)
        yield subscribed
        if (unanswered_ms := answered_ms(snapshot, now_ms)) is not None:
            help_text = "Since the server last answered a request."
            yield _gauge("server_last_answer_age_seconds", help_text, unanswered_ms / 1000)
        if server["connected"]:
            yield from self._connected(body, server)

    def _connected(
        self, body: dict[str, Any], server: dict[str, Any]
    ) -> Iterator[GaugeMetricFamily]:
        about = GaugeMetricFamily(
            "codexdrv_server_info", "The server that is connected.", labels=["version", "pid"]
        )
        about.add_metric([server["version"] or "", str(server["pid"] or "")], 1.0)
        yield about
        if server["version"] is not None and server["version_on_disk"] is not None:
            help_text = "1 when another codex lies on disk."
            yield _gauge("server_outdated", help_text, server["outdated"])
        questions, now_ms = body["questions"], self._machine.now_ms
        yield _gauge("questions_open", "Questions that wait.", len(questions))
        since_ms = min((each["since_ms"] for each in questions), default=now_ms)
        age_s = max(0, now_ms - since_ms) / 1000
        yield _gauge("oldest_question_age_seconds", "0 when none is open.", age_s)


def _healthy(*, is_healthy: bool) -> GaugeMetricFamily:
    return _gauge("healthy", "1 when nothing is wrong.", is_healthy)


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"codexdrv_{name}", help_text, value=float(value))
