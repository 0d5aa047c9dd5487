"""Drives vLLM's KV cache manager with the prompts of a file that bench/peers wrote.

    driver.py        imports what it needs and ends
    driver.py FILE   prints one JSON object: the seconds of each stage, blocks and hits

A request is what vLLM's scheduler does for a prompt: hash its blocks (sha256, the
default), ask for computed blocks, allocate slots, read the block ids, free. Making the
Request object with its copy of the tokens is not timed. As in vLLM's server the garbage
collector is frozen after start-up and keeps running.
"""

import gc
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

from prompts import read


def manager(size, pages):
    """A manager of one group of full attention. It needs two blocks more than are
    compared: its null block, and one for the prompt's last token, which is never stored."""
    spec = FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=torch.float16)
    config = KVCacheConfig(
        num_blocks=pages + 2,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(layer_names=["layer"], kv_cache_spec=spec)],
    )
    return KVCacheManager(
        config,
        max_model_len=(pages + 1) * size,
        scheduler_block_size=size,
        hash_block_size=size,
        enable_caching=True,
    )


def main(path):
    own, size, pages, requests = read(path)
    init_none_hash(sha256)
    hasher, kv = get_request_block_hasher(size, sha256), manager(size, pages)
    sampling = SamplingParams(max_tokens=1)
    hashing = matching = storing = releasing = 0.0
    blocks = hits = 0
    gc.collect()
    gc.freeze()
    for number, ids in enumerate(requests):
        tokens = [first + i for first in (n * own for n in ids) for i in range(own)]
        del tokens[pages * size :]
        blocks += len(ids) * own // size
        tokens.append(2**31 - 1)
        request = Request(str(number), tokens, sampling, None)
        start = time.perf_counter()
        request.block_hashes = hasher(request)
        hashed = time.perf_counter()
        computed, reused, _ = kv.get_computed_blocks(request)
        matched = time.perf_counter()
        new = kv.allocate_slots(request, len(tokens) - reused, reused, computed)
        kv.get_block_ids(request.request_id)
        stored = time.perf_counter()
        if new is None:
            raise RuntimeError(f"request {number} was refused")
        kv.free(request)
        released = time.perf_counter()
        hits += reused // size
        hashing += hashed - start
        matching += matched - hashed
        storing += stored - matched
        releasing += released - stored
    json.dump(
        {
            "version": version("vllm"),
            "requests": len(requests),
            "blocks": blocks,
            "hits": hits,
            "seconds": hashing + matching + storing + releasing,
            "stages": {"hash": hashing, "match": matching, "store": storing, "release": releasing},
        },
        sys.stdout,
    )
    print()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
