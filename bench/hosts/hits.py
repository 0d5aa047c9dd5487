"""Counts hits of caches in host memory with the prompts of recorded traces, as Markdown.

hits.py TRACES [--lmcache DIR] [--requests N]

TRACES is a folder with traces that docs/traces.md describes. Each cache has the same number of
blocks of memory and serves the same prompts one after the other. No block stays on a device
between two of them: a prompt is looked up, the blocks of its longest stored prefix are loaded
and let go, and the others are stored. A hit is a block of that prefix. All identities of a
trace are whole blocks, as in demo replay, and answers are not stored.

- vLLM: CPUOffloadingManager, called in the order of vLLM's scheduler.
- LMCache: LocalCPUBackend, called in the order of its connector, from the package in --lmcache.
- kvactor: kvactord, by the Python client in the order of KvactorConnector. Requests come as
  fast as they are served, so forecast sees hours in minutes.
- kvactor, forecast with the times of the trace: demo replay --atomic, whose hits under
  priority_lru must be those of the daemon.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Trace:
    """A file of the folder, the tokens of its blocks, and how many blocks caches have."""

    title: str
    file: str
    tokens: int
    sizes: tuple[int, ...]

    def prompts(self, folder: Path, limit: int) -> list[np.ndarray]:
        """The identities of the blocks of each prompt."""
        with gzip.open(folder / self.file) as lines:
            return [blocks_of(json.loads(line)) for line in islice(lines, limit)]


TRACES = (
    Trace("conversation", "mooncake_conversation_h1.jsonl.gz", 512, (5000, 10000, 20000)),
    Trace("agents", "claude_code_agentic_dev.jsonl.gz", 64, (8192, 16384, 32768)),
)


def blocks_of(line: dict[str, list]) -> np.ndarray:
    """The identities of a prompt's blocks."""
    if "hash_ids" in line:
        return np.array(line["hash_ids"], np.int32)
    runs = [np.arange(first, first + n, dtype=np.int32) for first, n in line["hash_runs"]]
    return np.concatenate(runs) if runs else np.zeros(0, np.int32)


class Cache(Protocol):
    """What is compared."""

    def serve(self, blocks: np.ndarray) -> int:
        """Serves a prompt and returns its hits."""


class VLLM:
    """vLLM's manager of blocks in host memory."""

    def __init__(self, size: int, policy: str) -> None:
        from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

        self._manager = CPUOffloadingManager(size, cache_policy=policy)

    def serve(self, blocks: np.ndarray) -> int:
        from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key

        keys = [make_offload_key(n.to_bytes(32, "big"), 0) for n in blocks.tolist()]
        request = ReqContext(req_id="")
        self._manager.on_new_request(request)
        hits = 0
        while hits < len(keys):
            if self._manager.lookup(keys[hits], request) is not LookupResult.HIT:
                break
            hits += 1
        if hits > 0:
            self._manager.prepare_load(keys[:hits], request)
            self._manager.complete_load(keys[:hits], request)
        if hits < len(keys):
            stored = self._manager.prepare_store(keys[hits:], request)
            if stored is not None:
                self._manager.complete_store(stored.keys_to_store, request)
        self._manager.on_request_finished(request)
        return hits


class LMCache:
    """LMCache's backend in host memory, with its default policy, LRU."""

    def __init__(self, size: int) -> None:
        import torch
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.memory_allocators.tensor_memory_allocator import TensorMemoryAllocator
        from lmcache.v1.pin_monitor import PinMonitor
        from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

        config = LMCacheEngineConfig()
        PinMonitor.GetOrCreate(config)
        # A block takes one unit of its allocator, whatever its bytes.
        memory = TensorMemoryAllocator(torch.empty(size * LMCACHE_UNIT, dtype=torch.uint8))
        self._backend = LocalCPUBackend(config, memory_allocator=memory)
        self._shape, self._type = torch.Size([LMCACHE_UNIT]), torch.uint8

    def serve(self, blocks: np.ndarray) -> int:
        from lmcache.utils import CacheEngineKey

        keys = [CacheEngineKey("model", 1, 0, n, self._type) for n in blocks.tolist()]
        hits = 0
        while hits < len(keys) and self._backend.contains(keys[hits], pin=True):
            hits += 1
        self._backend.touch_cache()
        for key in keys[:hits]:
            self._backend.get_blocking(key).ref_count_down()
            self._backend.unpin(key)
        stored = []
        for _ in keys[hits:]:
            block = self._backend.allocate(self._shape, self._type, busy_loop=False)
            if block is None:
                break
            stored.append(block)
        self._backend.batched_submit_put_task(keys[hits : hits + len(stored)], stored)
        for block in stored:
            block.ref_count_down()
        return hits


LMCACHE_UNIT = 4096
"""Bytes that LMCache's allocator gives at least."""


class Daemon:
    """A kvactord of its own, by the Python client."""

    def __init__(self, size: int, policy: str, tokens: int) -> None:
        import kvactor

        page = tokens * max(1, -(-MIN_MEMORY // (size * tokens)))
        options = {"policy": policy, "quiet": True}
        self._daemon = kvactor.spawn(f"{size * page}B", options=options)
        group = kvactor.Group("full", tokens, (page,))
        self._session = self._daemon.connect().open("hits", "hits", [group])
        (pool,) = self._session.attachment.pools
        if pool.pages != size:
            raise ValueError(f"the daemon has {pool.pages} pages, not {size}")
        self._offsets = np.arange(tokens, dtype=np.int32)

    def serve(self, blocks: np.ndarray) -> int:
        import kvactor

        tokens = len(self._offsets)
        whole = (blocks[:, None] * tokens + self._offsets).ravel()
        # A match never has a prompt's last token, and this one is of no block.
        found = self._session.match(kvactor.Prompt(np.append(whole, LAST_TOKEN)))
        self._session.release(found.handle)
        if found.tokens < len(whole):
            write = self._session.reserve(kvactor.Reserve(kvactor.Prompt(whole)))
            self._session.written(write.handle, len(whole))
            self._session.release(write.handle)
        return found.tokens // tokens

    def close(self) -> None:
        self._session.close()
        self._daemon.stop()


MIN_MEMORY = 1 << 20
"""Bytes of the least memory of a daemon."""
LAST_TOKEN = np.int32(2**31 - 1)


def replay(demo: Path, file: Path, size: int, policy: str, limit: int) -> int:
    """The hits of the engine in demo replay, with the times of the trace."""
    command = [demo, "replay", file, "--atomic", "--kernels=false", "--json"]
    command += ["--pages", str(size), "--policy", policy, "--limit", str(limit)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(json.loads(out)["hit_blocks"])


def played(cache: Cache, prompts: list[np.ndarray]) -> int:
    """The hits of a cache with all prompts."""
    return sum(cache.serve(blocks) for blocks in prompts)


def columns(
    trace: Trace, file: Path, demo: Path, prompts: list[np.ndarray]
) -> dict[str, Callable[[int], int]]:
    """What counts hits for a number of blocks, by its title in the table."""

    def daemon(policy: str) -> Callable[[int], int]:
        def hits(size: int) -> int:
            cache = Daemon(size, policy, trace.tokens)
            try:
                return played(cache, prompts)
            finally:
                cache.close()

        return hits

    def lru(size: int) -> int:
        hits = daemon("priority_lru")(size)
        other = replay(demo, file, size, "priority_lru", len(prompts))
        if other != hits:
            raise ValueError(f"{hits} hits by the daemon, {other} by demo replay")
        return hits

    def forecast(size: int) -> int:
        return replay(demo, file, size, "forecast", len(prompts))

    return {
        "vLLM, LRU": lambda size: played(VLLM(size, "lru"), prompts),
        "vLLM, ARC": lambda size: played(VLLM(size, "arc"), prompts),
        "LMCache, LRU": lambda size: played(LMCache(size), prompts),
        "kvactor, priority_lru": lru,
        "kvactor, forecast, at full speed": daemon("forecast"),
        "kvactor, forecast": forecast,
    }


def build(folder: Path) -> None:
    """Builds kvactord and demo."""
    command = ["go", "build", "-o", f"{folder}/", "./cmd/kvactord", "./cmd/demo"]
    subprocess.run(command, cwd=ROOT, check=True)
    os.environ["KVACTORD"] = str(folder / "kvactord")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("traces", type=Path, help="a folder")
    parser.add_argument("--lmcache", type=Path, help="a folder with its package")
    parser.add_argument("--requests", type=int, default=1 << 30, help="of each trace, at most")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "python"))
    if options.lmcache is not None:
        sys.path.append(str(options.lmcache))
    os.environ["LMCACHE_LOG_LEVEL"] = "ERROR"
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        for trace in TRACES:
            rows(trace, options.traces, Path(folder), options.requests)


def rows(trace: Trace, folder: Path, built: Path, limit: int) -> None:
    """Prints the rows of a trace."""
    prompts = trace.prompts(folder, limit)
    asked = sum(len(blocks) for blocks in prompts)
    counters = columns(trace, folder / trace.file, built / "demo", prompts)
    if trace is TRACES[0]:
        print("| trace, blocks of memory |", " | ".join(counters), "|")
        print("| --- |", " | ".join(["--:"] * len(counters)), "|")
    for size in trace.sizes:
        cells = []
        for title, hits in counters.items():
            began = time.monotonic()
            try:
                found = hits(size)
            except ImportError as error:
                note(f"{title}: {error}")
                cells.append("not here")
                continue
            cells.append(f"{100 * found / asked:.2f} %")
            note(
                f"{trace.title} {size:,}: {title}: {found:,} of {asked:,} blocks, "
                f"{time.monotonic() - began:.0f} s"
            )
        print(f"| {trace.title}, {size:,} |", " | ".join(cells), "|", flush=True)


def note(line: str) -> None:
    """Says how it goes on."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
