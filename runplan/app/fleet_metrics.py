"""The metrics of a fleet for Prometheus: printed once, or served."""

import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Metric, generate_latest, start_http_server
from prometheus_client.registry import Collector

from runplan.adapters.store import hosts
from runplan.adapters.store.location import FleetLocation
from runplan.app.fleet import require_dsn
from runplan.app.operations.model import Caller
from runplan.domain.errors import RefusedEarly, RunplanError
from runplan.engine.report.metrics import Sample, collect_fleet_samples, read_journals


def read_metrics(caller: Caller) -> str:
    return generate_latest(FleetCollector(require_dsn(caller))).decode()


def serve_metrics(caller: Caller, address: str, port: int) -> None:
    """Answer Prometheus until the process is told to end; each answer reads the fleet anew."""
    registry = CollectorRegistry()
    registry.register(FleetCollector(require_dsn(caller), warn=caller.warn))
    ends = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # before the threads of the server
    try:
        server, thread = start_http_server(port, address, registry)
    except (OSError, OverflowError) as error:
        raise RefusedEarly(f"metrics cannot be served at {address}, port {port}: {error}") from error
    caller.say(f"Metrics are served at http://{address}:{server.server_port}/metrics")
    signal.sigwait(ends)
    server.shutdown()
    thread.join()


class FleetCollector(Collector):
    """With `warn` a database that does not answer is a metric, else an error."""

    def __init__(self, dsn: str, *, warn: Callable[[str], None] | None = None) -> None:
        self._dsn = dsn
        self._warn = warn

    def collect(self) -> Iterator[Metric]:
        samples: list[Sample] = []
        try:
            state = hosts.read_fleet(self._dsn)
            stores = {url: FleetLocation(self._dsn, url) for url in state.repositories}
            samples = [*collect_fleet_samples(state), *read_journals(stores, now=datetime.now(UTC))]
        except RunplanError as error:
            if self._warn is None:
                raise
            self._warn(str(error))
        samples.append(Sample("runplan_fleet_database_up", "1 while the fleet's database answers", (), bool(samples)))
        families: dict[str, Metric] = {}
        for sample in sorted(samples, key=lambda sample: (sample.name, sample.labels)):
            kind = "counter" if sample.name.endswith("_total") else "gauge"
            family = families.setdefault(sample.name, Metric(sample.name.removesuffix("_total"), sample.help, kind))
            family.add_sample(sample.name, dict(sample.labels), sample.value)
        yield from families.values()
