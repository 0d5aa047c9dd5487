"""The side of the connector that runs in each worker of vLLM and moves bytes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults
from vllm.logger import init_logger
from vllm.v1.kv_cache_interface import group_kernel_blocks

from kvactor.attached import Attached
from kvactor.errors import KvactorError
from kvactor.vllm.metadata import Copy, Load, StepReport, StepWork
from kvactor.vllm.metrics import TransferStats
from kvactor.vllm.transfers import CpuTransfers, CudaTransfers, Transfers

if TYPE_CHECKING:
    import torch

    from kvactor.vllm.geometry import CacheGroup

logger = init_logger(f"vllm.{__name__}")

# Seconds that a step which computes nothing waits for a load before it returns. Without
# the wait the scheduler would spin on the processor that copies.
IDLE_WAIT = 0.002

# Seconds until the worker tries again to attach to a session that it could not attach to.
RETRY_SECONDS = 1.0


class WorkerSide:
    """Copies blocks between the tensors of one rank and the pages of the daemon.

    Saves are done when wait_for_save returns (on the CPU) or before the next step may
    overwrite their blocks (on a device). Loads run on a thread of their own between
    steps, since the requests that need them wait outside of the batch.
    """

    def __init__(self, groups: list[CacheGroup], blocks: int, rank: int) -> None:
        self._groups = groups
        self._blocks = blocks
        self._rank = rank
        self._transfers: Transfers | None = None
        self._attached: Attached | None = None
        self._generation = 0
        self._retry = (0, 0.0)  # a generation, and when it is tried again
        self._loader = ThreadPoolExecutor(1, "kvactor-load")
        self._loading: dict[str, Future[tuple[int, float]]] = {}
        self._report = StepReport()
        self.stats = TransferStats()

    def register(self, tensors: dict[str, torch.Tensor]) -> None:
        """Takes the tensors of the layers: shape (blocks, ...), a block of a layer each.

        With blocks of other sizes than vLLM has announced, nothing is copied.
        """
        layers = [
            [group_kernel_blocks(tensors[name], self._blocks) for name in g.layers]
            for g in self._groups
        ]
        for group, parts in zip(self._groups, layers, strict=True):
            for name, tensor, size in zip(
                group.layers, parts, group.group.layer_bytes, strict=True
            ):
                found = tensor[0].numel() * tensor.element_size()
                if found != size:
                    logger.error(
                        "kvactor: nothing is cached: a block of %s has %d bytes, not %d",
                        *(name, found, size),
                    )
                    return
        cuda = layers[0][0].device.type == "cuda"
        self._transfers = (CudaTransfers if cuda else CpuTransfers)(layers)

    def start(self, work: StepWork) -> None:
        """Follows the scheduler to another session, and starts loads."""
        self._follow(work)
        for load in work.loads:
            self._loading[load.request] = self._loader.submit(self._load, load)

    def save(self, work: StepWork) -> None:
        """Copies what the step has computed to the pages that are reserved for it."""
        self._follow(work)
        if not work.saves:
            return
        began = time.perf_counter()
        for batch, copies in work.saves.items():
            try:
                moved = self._copy(copies, work.generation, to_pages=True)
                self.stats.add("saved_bytes", moved)
                self._report.written[batch] = 1
            except ConnectionError as error:
                logger.warning("kvactor: blocks are not saved: %s", error)
                self._report.failed.add(batch)
            except Exception:
                logger.exception("kvactor: blocks could not be saved")
                self._report.failed.add(batch)
        self.stats.add("save_seconds", time.perf_counter() - began)

    def results(self, work: StepWork | None) -> KVConnectorTransferResults:
        """The requests whose loads are over; in a step without work it waits briefly."""
        if work is not None and work.idle and self._loading:
            wait(self._loading.values(), IDLE_WAIT)
        results = KVConnectorTransferResults()
        for request, future in list(self._loading.items()):
            if not future.done():
                continue
            del self._loading[request]
            results.finished_recving.add(request)
            error = future.exception()
            if error is not None:
                logger.warning("kvactor: a prefix is computed, its load failed: %s", error)
                results.failed_recving.add(request)
                continue
            moved, seconds = future.result()
            self.stats.add("loaded_bytes", moved)
            self.stats.add("load_seconds", seconds)
        return results

    def report(self) -> StepReport | None:
        """The saves that are done since the last call."""
        report, self._report = self._report, StepReport()
        return report if report.written or report.failed else None

    def close(self) -> None:
        """Ends the loader and lets go of the daemon's memory."""
        self._loader.shutdown(wait=True, cancel_futures=True)
        if self._attached is not None:
            self._attached.close()

    def _follow(self, work: StepWork) -> None:
        """Attaches to the session that the scheduler has, in place of the one before."""
        if work.attachment is None or work.generation == self._generation:
            return
        failed, until = self._retry
        if self._transfers is None or (failed == work.generation and time.monotonic() < until):
            return
        wait(self._loading.values())  # they read the memory that is unmapped below
        try:
            attached = Attached(work.attachment, self._rank)
        except KvactorError as error:
            logger.warning("kvactor: no copies for the present session: %s", error)
            self._retry = work.generation, time.monotonic() + RETRY_SECONDS
            return
        before, self._attached = self._attached, attached
        self._generation = 0  # nothing is copied if the memory cannot be used
        try:
            self._transfers.use(attached.memory)
            self._generation = work.generation
            # Otherwise a step waits for it in its copies.
            populate = attached.memory.populate
            threading.Thread(target=populate, name="kvactor-populate", daemon=True).start()
        except RuntimeError as error:
            logger.warning("kvactor: the daemon's memory cannot be used: %s", error)
            self._retry = work.generation, time.monotonic() + RETRY_SECONDS
        if before is not None:
            before.close()

    def _load(self, load: Load) -> tuple[int, float]:
        if not load.copies:
            raise ConnectionError("the daemon lacks a page of the prefix")
        began = time.perf_counter()
        moved = self._copy(load.copies, load.generation, to_pages=False)
        return moved, time.perf_counter() - began

    def _copy(self, copies: list[Copy], generation: int, to_pages: bool) -> int:
        attached = self._attached
        if self._transfers is None or attached is None or generation != self._generation:
            raise ConnectionError("the memory of this session with the daemon is not mapped")
        with attached.copying():
            try:
                return sum(self._transfers.copy(c, to_pages) for c in copies)
            finally:
                self._transfers.finish()
