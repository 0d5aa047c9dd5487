"""The connector with recurrent layers against a daemon, without an engine of vLLM."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

from test_vllm import BLOCK, FULL, Host, content, ids, make  # noqa: E402
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, MambaSpec  # noqa: E402

from kvactor.types import Group, Kind  # noqa: E402
from kvactor.vllm.connector import _fingerprint  # noqa: E402
from kvactor.vllm.geometry import CacheGroup, UnsupportedCacheError, cache_groups  # noqa: E402

STATE = CacheGroup(1, ("s",), Group("state", BLOCK, (BLOCK * 8 * 4,), Kind.STATE))
CHUNK = 4 * BLOCK


@pytest.fixture
def host(daemon):
    found = Host(daemon.path, (FULL, STATE))
    yield found
    found.close()


def compute(host, request, blocks, first, last, offers):
    """A step that computes tokens [first, last); vLLM offers the states of blocks."""
    for name in FULL.layers:
        for b in range(first // BLOCK, last // BLOCK):
            host.tensors[name][blocks[b]] = content(request, name, b)
    for _, block, tokens in offers:
        host.tensors["s"][block] = content(request, "s", tokens // BLOCK - 1)
    table = (blocks, [0] * len(blocks))
    new = SimpleNamespace(req_id=request.request_id, num_computed_tokens=first)
    output = SimpleNamespace(
        scheduled_new_reqs=[new],
        scheduled_cached_reqs=SimpleNamespace(req_ids=[], num_computed_tokens=[]),
        num_scheduled_tokens={request.request_id: last - first},
        total_num_scheduled_tokens=last - first,
        kv_connector_block_state=SimpleNamespace(
            get_block_ids=lambda name: table,
            boundary_state_offloads={request.request_id: offers} if offers else {},
        ),
    )
    return host.work(host.scheduler.step(output))


def stored(host, tokens, at):
    """Computes and stores a request whose states vLLM offers after so many tokens."""
    request = make("a", tokens)
    assert host.scheduler.match(request, 0) == 0
    blocks = list(range(1, len(tokens) // BLOCK + 2))
    for first in range(0, len(tokens), CHUNK):
        last = min(first + CHUNK, len(tokens))
        offers = [(1, 40 + n // BLOCK, n) for n in at if first < n <= last]
        compute(host, request, blocks, first, last, offers)
    host.scheduler.finished(request)


def test_a_match_ends_where_there_is_a_state_and_brings_it(host):
    tokens = ids(2 * CHUNK + 9)
    stored(host, tokens, [2 * CHUNK])
    request = make("b", tokens)
    into = (list(range(20, 28)), [0] * 7 + [30])
    assert host.load(request, into) == 2 * CHUNK
    for name in FULL.layers:
        for b, block in enumerate(into[0]):
            assert (host.tensors[name][block] == content(request, name, b)).all()
    assert (host.tensors["s"][30] == content(request, "s", 7)).all()


def test_each_state_that_is_offered_can_be_matched(host):
    tokens = ids(2 * CHUNK + 9)
    stored(host, tokens, [CHUNK, 2 * CHUNK])
    other = make("b", tokens[: CHUNK + 8] + ids(CHUNK, 1))
    assert host.load(other, (list(range(20, 24)), [0, 0, 0, 31])) == CHUNK
    assert (host.tensors["s"][31] == content(other, "s", 3)).all()
    same = make("c", tokens)
    assert host.load(same, (list(range(20, 28)), [0] * 7 + [30])) == 2 * CHUNK
    assert (host.tensors["s"][30] == content(same, "s", 7)).all()


def test_nothing_is_stored_without_a_state(host):
    tokens = ids(2 * CHUNK + 9)
    stored(host, tokens, [])
    assert host.scheduler.match(make("b", tokens), 0) == 0


def test_a_state_inside_a_block_is_not_stored(host):
    tokens = ids(2 * CHUNK + 9)
    stored(host, tokens, [2 * CHUNK - 3])
    assert host.scheduler.match(make("b", tokens), 0) == 0


def test_a_load_of_fewer_tokens_than_were_matched_fails(host):
    tokens = ids(2 * CHUNK + 9)
    stored(host, tokens, [2 * CHUNK])
    request = make("b", tokens)
    assert host.scheduler.match(request, 0) == 2 * CHUNK
    blocks = SimpleNamespace(get_block_ids=lambda: (list(range(20, 24)), [0, 0, 0, 30]))
    host.scheduler.allocated(request, blocks, CHUNK)
    assert host.step().failed_recving == {"b"}
    assert not host.tensors["s"][30].any()


@pytest.mark.parametrize("mode", ["align", "none"])
def test_groups_of_states_are_those_that_vllm_keeps_at_blocks(mode):
    spec = MambaSpec(
        block_size=BLOCK,
        shapes=((2, 8),),
        dtypes=(torch.float32,),
        page_size_padded=4096,
        mamba_cache_mode=mode,
    )
    config = KVCacheConfig(
        num_blocks=4, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["s"], spec)]
    )
    if mode == "none":
        with pytest.raises(UnsupportedCacheError, match="prefix caching"):
            cache_groups(config)
        return
    (group,) = cache_groups(config)
    assert group.group == Group("group0", BLOCK, (64,), Kind.STATE)


def test_a_load_into_no_block_fails(host):
    tokens = ids(2 * CHUNK + 9)
    stored(host, tokens, [2 * CHUNK])
    # vLLM's null block is every request's: nothing is written there.
    assert host.load(make("b", tokens), (list(range(20, 28)), [0] * 8)) == -1
    assert not host.tensors["s"][0].any()


def test_states_of_other_types_are_other_bytes():
    def fingerprint(dtype):
        spec = MambaSpec(
            block_size=BLOCK, shapes=((2, 8),), dtypes=(dtype,), mamba_cache_mode="align"
        )
        cache = KVCacheConfig(
            num_blocks=4, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["s"], spec)]
        )
        config = SimpleNamespace(
            model_config=SimpleNamespace(
                hf_config=SimpleNamespace(to_dict=dict), dtype=torch.float16, quantization=None
            ),
            cache_config=SimpleNamespace(cache_dtype="auto"),
            parallel_config=SimpleNamespace(world_size=1),
            load_config=SimpleNamespace(load_format="auto"),
            device_config=SimpleNamespace(device_type="cpu"),
        )
        return _fingerprint(config, cache, cache_groups(cache), {"fingerprint": "w"})

    assert fingerprint(torch.float16) == fingerprint(torch.float16)
    assert fingerprint(torch.float16) != fingerprint(torch.bfloat16)
