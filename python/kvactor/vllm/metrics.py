"""Statistics of the connector, in vLLM's log and on its /metrics."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter, Gauge
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
    PromMetric,
    PromMetricT,
)

COUNTERS = {
    "matches": "Requests whose prefix the daemon was asked for.",
    "matched_tokens": "Tokens that the daemon had beyond vLLM's own cache.",
    "loaded_bytes": "Bytes copied from the daemon's memory.",
    "load_seconds": "Seconds that copies from the daemon's memory took.",
    "saved_bytes": "Bytes copied to the daemon's memory.",
    "save_seconds": "Seconds that copies to the daemon's memory took.",
    "wire_seconds": "Seconds that the scheduler waited for answers of the daemon.",
    "refused_blocks": "Blocks that the daemon had no page for.",
    "lost_sessions": "Sessions that ended with the daemon or by a deadline.",
}
GAUGE = "connected"


class TransferStats(KVConnectorStats):
    """Counters since the last collection, and whether there is a session."""

    def reset(self) -> None:
        """Forgets all counts."""
        self.data.clear()

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Adds the counts of another rank, or of a later interval."""
        for name, value in other.data.items():
            if name == GAUGE:
                self.data[name] = value
            else:
                self.add(name, value)
        return self

    def reduce(self) -> dict[str, int | float]:
        """The counts, rounded, for a line of the log."""
        return {name: round(value, 4) for name, value in sorted(self.data.items())}

    def is_empty(self) -> bool:
        """Reports whether nothing was counted."""
        return not self.data

    def add(self, name: str, value: float) -> None:
        """Adds to a counter."""
        self.data[name] = self.data.get(name, 0) + value

    def take(self) -> TransferStats | None:
        """Returns the counts and starts again; None if there are none."""
        if self.is_empty():
            return None
        taken = TransferStats(dict(self.data))
        self.reset()
        return taken


class PromMetrics(KVConnectorPromMetrics):
    """The counters as vllm:kvactor_*_total, and the gauge vllm:kvactor_connected."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: dict[type[PromMetric], type[PromMetricT]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._metrics: dict[str, dict[int, Any]] = {}
        for name, text in COUNTERS.items():
            self._metrics[name] = self._each(metric_types[Counter], name, text, labelnames)
        self._metrics[GAUGE] = self._each(
            metric_types[Gauge], GAUGE, "1 while there is a session with the daemon.", labelnames
        )

    def _each(self, metric: Any, name: str, text: str, labels: list[str]) -> dict[int, Any]:
        family = metric(name=f"vllm:kvactor_{name}", documentation=text, labelnames=labels)
        values = self.per_engine_labelvalues
        return {engine: family.labels(*of) for engine, of in values.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Adds the counts of an interval."""
        for name, value in transfer_stats_data.items():
            metric = self._metrics[name][engine_idx]
            if name == GAUGE:
                metric.set(value)
            else:
                metric.inc(value)
