"""The class that vLLM loads."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.logger import init_logger
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from kvactor.fingerprint import fingerprint
from kvactor.link import Link
from kvactor.vllm import versions
from kvactor.vllm.geometry import CacheGroup, UnsupportedCacheError, cache_groups, state_formats
from kvactor.vllm.metadata import StepWork
from kvactor.vllm.metrics import PromMetrics, TransferStats
from kvactor.vllm.scheduler import SchedulerSide
from kvactor.vllm.worker import WorkerSide

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
        KVConnectorPromMetrics,
        KVConnectorStats,
        PromMetric,
        PromMetricT,
    )
    from vllm.forward_context import ForwardContext
    from vllm.v1.attention.backend import AttentionMetadata
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

logger = init_logger(f"vllm.{__name__}")

OPTIONS = ("socket", "name", "fingerprint", "deadline_ms", "untried")


class KvactorConnector(KVConnectorBase_V1, SupportsHMA):
    """Keeps vLLM's blocks in a kvactord on the same machine.

    Options, in kv_connector_extra_config:
        socket: the path of the daemon's socket.
        name: the name of the session in the daemon's statistics; "vllm" by default.
        fingerprint: names the weights, instead of samples of their files.
        deadline_ms: milliseconds that the scheduler waits for an answer before it takes
            the daemon for dead; 1000 by default.
        untried: true admits a version of vLLM that was not tried, if its interface of
            connectors is the same.

    A daemon that is not there, dies or stands still costs the computation of what it
    had; the connector looks for it once a second.
    """

    _cache_hit_source = CacheHitSource.HOST

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        options = self._kv_transfer_config.kv_connector_extra_config
        versions.require(vllm.__version__, KVConnectorBase_V1, bool(options.get("untried")))
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown or not options.get("socket"):
            what = f"{unknown[0]!r} is unknown" if unknown else "'socket' is missing"
            raise ValueError(f"kv_connector_extra_config: {what}; it has {', '.join(OPTIONS)}")
        # What a cache has lost can always be computed, so no request has to fail for it.
        self._kv_transfer_config.kv_load_failure_policy = "recompute"
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        try:
            groups = _groups(vllm_config, kv_cache_config)
        except UnsupportedCacheError as error:
            logger.warning("kvactor: nothing is cached, because %s", error)
            return
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = self._scheduler_side(vllm_config, groups, options)
        else:
            parallel = vllm_config.parallel_config
            rank = parallel.rank % parallel.world_size
            self._worker = WorkerSide(groups, kv_cache_config.num_blocks, rank)

    def _scheduler_side(
        self, config: VllmConfig, groups: list[CacheGroup], options: dict[str, Any]
    ) -> SchedulerSide:
        ranks = config.parallel_config.world_size
        link = Link(
            options["socket"],
            name=str(options.get("name", "vllm")),
            fingerprint=_fingerprint(config, self._kv_cache_config, groups, options),
            groups=[g.group for g in groups],
            ranks=ranks,
            max_tokens=config.model_config.max_model_len,
            deadline=float(options.get("deadline_ms", 1000)) / 1000,
            log=logger.info,
        )
        role = self._kv_transfer_config
        return SchedulerSide(groups, link, ranks, role.is_kv_consumer, role.is_kv_producer)

    @property
    def requires_kv_delivery(self) -> bool:
        """False: a block that is not saved is computed again."""
        return False

    # The worker's methods.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Takes the tensors of the layers."""
        if self._worker is not None:
            self._worker.register(kv_caches)

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        """Starts the loads of requests that wait for them."""
        if self._worker is not None:
            self._worker.start(self._work())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Does nothing: no request of a batch waits for a load."""

    def save_kv_layer(
        self,
        layer_name: str,
        kv_layer: torch.Tensor,
        attn_metadata: AttentionMetadata,
        **kwargs: Any,
    ) -> None:
        """Does nothing: blocks are saved whole, after the step."""

    def wait_for_save(self) -> None:
        """Saves the blocks that the step has completed."""
        if self._worker is not None:
            self._worker.save(self._work())

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """The loads that are over, and those that failed."""
        if self._worker is None:
            return KVConnectorTransferResults()
        work = self._connector_metadata
        return self._worker.results(work if isinstance(work, StepWork) else None)

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        """The saves that are done."""
        return None if self._worker is None else self._worker.report()

    def _work(self) -> StepWork:
        work = self._get_connector_metadata()
        assert isinstance(work, StepWork)
        return work

    # The scheduler's methods.

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Tokens beyond the computed ones that can be loaded, between steps."""
        if self._scheduler is None:
            return 0, False
        tokens = self._scheduler.match(request, num_computed_tokens)
        return tokens, bool(tokens)

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        """Plans the load of what was matched."""
        if self._scheduler is not None:
            self._scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        """Reserves pages for the blocks that the step completes."""
        if self._scheduler is None:
            return StepWork()
        return self._scheduler.step(scheduler_output)

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        """Tells the daemon what the workers have copied."""
        if self._scheduler is not None:
            self._scheduler.done(connector_output)

    def request_finished(
        self, request: Request, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Lets go of the request. Its blocks are free at once."""
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Lets go of the request. Its blocks are free at once."""
        if self._scheduler is not None:
            self._scheduler.finished(request)
        return False, None

    def reset_cache(self) -> bool | None:
        """Makes the daemon forget the blocks of this model."""
        return None if self._scheduler is None else self._scheduler.reset()

    # Statistics and the end.

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        """The counts since the last call."""
        if self._scheduler is not None:
            return self._scheduler.collect()
        return None if self._worker is None else self._worker.stats.take()

    @classmethod
    def build_kv_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> KVConnectorStats | None:
        """The counts of a dictionary."""
        return TransferStats(data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[PromMetricT]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KVConnectorPromMetrics | None:
        """The metrics vllm:kvactor_*."""
        return PromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        """Ends the session, or the worker's copies."""
        if self._scheduler is not None:
            self._scheduler.close()
        if self._worker is not None:
            self._worker.close()


def _groups(config: VllmConfig, cache: KVCacheConfig) -> list[CacheGroup]:
    parallel = config.parallel_config
    for name in (
        "pipeline_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
    ):
        if getattr(parallel, name, 1) > 1:
            raise UnsupportedCacheError(f"{name} is {getattr(parallel, name)}")
    if getattr(config.cache_config, "calculate_kv_scales", False):
        raise UnsupportedCacheError("calculate_kv_scales makes keys depend on the first batch")
    return cache_groups(cache)


def _fingerprint(
    config: VllmConfig, cache: KVCacheConfig, groups: list[CacheGroup], options: dict[str, Any]
) -> str:
    """Hashes what the bytes of a block depend on, beside tokens and the request."""
    model = config.model_config
    shape = model.hf_config.to_dict()
    for volatile in ("_name_or_path", "transformers_version"):
        shape.pop(volatile, None)
    described = {
        "vllm": vllm.__version__,
        "config": shape,
        "dtype": str(model.dtype),
        "quantization": model.quantization,
        "cache_dtype": config.cache_config.cache_dtype,
        "layout": cache.kv_cache_layout,
        "ranks": config.parallel_config.world_size,
        "load_format": str(config.load_config.load_format),
        "device": config.device_config.device_type,
        "machine": platform.machine(),
        "groups": [g.group for g in groups],
        "states": state_formats(cache),
    }
    if config.device_config.device_type == "cpu":
        # The layout of keys depends on the instructions that the processor has.
        found = torch.cpu.get_capabilities()
        described["processor"] = sorted(name for name, has in found.items() if has is True)
    if "fingerprint" in options:
        described["weights"] = options["fingerprint"]
        return fingerprint(described)
    if not Path(model.model).exists():
        described["weights"] = f"{model.model}@{model.revision}"
    return fingerprint(described, model.model)
