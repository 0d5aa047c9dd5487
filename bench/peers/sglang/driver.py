"""Drives SGLang's radix cache with the prompts of a file that bench/peers wrote.

    driver.py        imports what it needs and ends
    driver.py FILE   prints one JSON object: the seconds of each stage, blocks and hits

A request is what SGLang's scheduler does for a prompt: match its tokens and read the
slots of the prefix, lock the node, evict and allocate for the rest, insert, unlock. The
core of the tree is the package's default, and slots are CPU tensors. A page is a block.
Making the array of the tokens is not timed.
"""

import array
import gc
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

import torch
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from prompts import read


class Contents:
    """The contents of the pages: none."""


def main(path):
    own, size, pages, requests = read(path)
    # One page more than is compared, for the prompt's last token, which is never stored.
    pool = PagedTokenToKVPoolAllocator((pages + 1) * size, size, torch.float16, "cpu", Contents(), False)
    params = CacheInitParams(False, None, pool, size, tree_components=(ComponentType.FULL,))
    cache = UnifiedRadixCache(params)
    matching = storing = releasing = 0.0
    blocks = hits = 0
    gc.collect()
    gc.freeze()
    for number, ids in enumerate(requests):
        tokens = array.array("q", [first + i for first in (n * own for n in ids) for i in range(own)])
        del tokens[pages * size :]
        blocks += len(ids) * own // size
        start = time.perf_counter()
        key = RadixKey(tokens)
        found = cache.match_prefix(MatchPrefixParams(key=key))
        reused = found.device_prefix_len
        slots = cache.path_device_indices(found.last_device_node)[:reused]
        lock = cache.lock(found.last_device_node)
        matched = time.perf_counter()
        need = len(tokens) - reused + size
        missing = need - pool.available_size()
        if missing > 0:
            cache.evict_for_alloc(EvictParams(num_tokens=missing))
        new = pool.alloc(need)
        if new is None:
            raise RuntimeError(f"request {number} was refused")
        slots = torch.cat([slots, new])
        if reused < len(tokens):
            # What was matched is in the tree: without these lengths the insertion would
            # free the prefix's slots as duplicates.
            value = slots[: len(tokens)]
            cache.insert(InsertParams(key, value, prev_prefix_len=reused, inserted_len=reused))
        stored = time.perf_counter()
        cache.unlock(lock)
        pool.free(slots[len(tokens) :])
        released = time.perf_counter()
        hits += reused // size
        matching += matched - start
        storing += stored - matched
        releasing += released - stored
    json.dump(
        {
            "version": version("sglang"),
            "requests": len(requests),
            "blocks": blocks,
            "hits": hits,
            "seconds": matching + storing + releasing,
            "stages": {"match": matching, "store": storing, "release": releasing},
        },
        sys.stdout,
    )
    print()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
