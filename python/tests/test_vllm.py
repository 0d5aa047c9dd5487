"""The two sides of the connector against a daemon, without an engine of vLLM."""

import os
import signal
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")
prometheus_client = pytest.importorskip("prometheus_client")

from vllm.v1.outputs import KVConnectorOutput  # noqa: E402

import kvactor  # noqa: E402
from kvactor import wire  # noqa: E402
from kvactor.link import Link  # noqa: E402
from kvactor.types import Group, Kind  # noqa: E402
from kvactor.vllm.geometry import CacheGroup  # noqa: E402
from kvactor.vllm.metrics import GAUGE, PromMetrics, TransferStats  # noqa: E402
from kvactor.vllm.requests import retention  # noqa: E402
from kvactor.vllm.scheduler import SchedulerSide  # noqa: E402
from kvactor.vllm.worker import WorkerSide  # noqa: E402

BLOCK, BLOCKS, WIDTH = 16, 64, 8
SIZE = BLOCK * WIDTH * 4
FULL = CacheGroup(0, ("a", "b"), Group("full", BLOCK, (SIZE, SIZE)))
WINDOW = CacheGroup(1, ("c",), Group("window", BLOCK, (SIZE,), Kind.WINDOW, 40))


class Host:
    """A vLLM with one worker: tensors whose block n of a request's tokens has their sum."""

    def __init__(self, path, groups=(FULL, WINDOW)):
        self.groups = list(groups)
        self.link = Link(
            os.fspath(path),
            name="t",
            fingerprint="f",
            groups=[g.group for g in groups],
            max_tokens=4096,
            deadline=0.5,
        )
        self.scheduler = SchedulerSide(self.groups, self.link, 1, True, True)
        self.worker = WorkerSide(self.groups, BLOCKS, 0)
        names = [name for g in groups for name in g.layers]
        self.tensors = {n: torch.zeros(BLOCKS, BLOCK, WIDTH) for n in names}
        self.worker.register(self.tensors)

    def compute(self, request, table, first, last):
        """One step that computes tokens [first, last), and the worker's report."""
        for group, blocks in zip(self.groups, table, strict=True):
            for name in group.layers:
                for b in range(first // BLOCK, last // BLOCK):
                    if blocks[b]:
                        self.tensors[name][blocks[b]] = content(request, name, b)
        new = SimpleNamespace(req_id=request.request_id, num_computed_tokens=first)
        self.step([new], {request.request_id: last - first}, table)

    def plan(self, new=(), scheduled=None, table=None):
        """What the scheduler gives the worker in a step."""
        output = SimpleNamespace(
            scheduled_new_reqs=list(new),
            scheduled_cached_reqs=SimpleNamespace(req_ids=[], num_computed_tokens=[]),
            num_scheduled_tokens=scheduled or {},
            total_num_scheduled_tokens=sum((scheduled or {}).values()),
            kv_connector_block_state=SimpleNamespace(get_block_ids=lambda name: table),
        )
        return self.scheduler.step(output)

    def step(self, new=(), scheduled=None, table=None):
        return self.work(self.plan(new, scheduled, table))

    def work(self, work):
        """What the worker does in a step, until all loads are over."""
        self.worker.start(work)
        self.worker.save(work)
        done = KVConnectorOutput()
        done.finished_recving, done.failed_recving = set(), set()
        for _ in range(1000):
            results = self.worker.results(work)
            done.finished_recving |= results.finished_recving
            done.failed_recving |= results.failed_recving
            if not self.worker._loading:
                break
        done.kv_connector_worker_meta = self.worker.report()
        self.scheduler.done(done)
        return done

    def load(self, request, table, computed=0):
        """Matches a request, loads it into the blocks of table, and returns the tokens."""
        tokens = self.scheduler.match(request, computed)
        if tokens:
            blocks = SimpleNamespace(get_block_ids=lambda: table)
            self.scheduler.allocated(request, blocks, tokens)
            done = self.step()
            assert done.finished_recving == {request.request_id}
            if done.failed_recving:
                return -1
        return tokens

    def close(self):
        self.scheduler.close()
        self.worker.close()


def content(request, name, block):
    tokens = request.all_token_ids[: (block + 1) * BLOCK]
    return float(sum(tokens) % 100003) + ord(name[0])


def make(name, tokens, **other):
    values = {
        "request_id": name,
        "prompt_token_ids": tokens,
        "all_token_ids": tokens,
        "prompt_embeds": None,
        "num_prompt_tokens": len(tokens),
        "cache_salt": None,
        "lora_request": None,
        "mm_features": [],
        "kv_transfer_params": None,
        "skip_reading_prefix_cache": False,
    }
    return SimpleNamespace(**{**values, **other})


def ids(n, seed=0):
    return np.random.default_rng(seed).integers(0, 30000, n).tolist()


def table(first, blocks, hidden=0):
    """Blocks from first on; the window's first ones are the null block."""
    window = [0] * hidden + list(range(first + blocks + hidden, first + 2 * blocks))
    return list(range(first, first + blocks)), window


def wait_for(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def handles(host):
    """What the session of a host holds."""
    request = wire.Request()
    request.stats.SetInParent()
    return host.link.session._call(request).stats.handles


def daemon_session(daemon):
    """A session with the groups of a host."""
    return daemon.connect(deadline=30).open("t", "f", [FULL.group, WINDOW.group], max_tokens=4096)


@pytest.fixture
def host(daemon):
    found = Host(daemon.path)
    yield found
    found.close()


def test_what_is_computed_is_loaded_by_another_request(host):
    tokens = ids(161)
    a = make("a", tokens)
    assert host.scheduler.match(a, 0) == 0
    host.compute(a, table(1, 10), 0, 160)
    host.scheduler.finished(a)
    b = make("b", tokens)
    into = table(30, 10, hidden=7)
    assert host.load(b, into) == 160
    for group, blocks in zip(host.groups, into, strict=True):
        for name in group.layers:
            for n, block in enumerate(blocks):
                if block:
                    assert (host.tensors[name][block] == content(b, name, n)).all()
    assert not host.tensors["c"][0].any()
    assert host.link.session.stats()["Pools"][0]["Primary"]["Used"] == 0


def test_chunks_keep_blocks_that_leave_their_window(host):
    tokens = ids(161)
    a = make("a", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 10), 0, 64)
    host.compute(a, table(1, 10, hidden=1), 64, 128)
    host.compute(a, table(1, 10, hidden=5), 128, 160)
    assert host.scheduler.match(make("b", tokens[:100]), 0) == 96
    assert host.scheduler.match(make("c", tokens), 0) == 160


def test_a_block_is_saved_when_its_last_token_is_known(host):
    a = make("a", ids(40))
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 4), 0, 40)
    a.all_token_ids += ids(23, 1)
    host.compute(a, table(1, 4), 62, 63)
    assert host.scheduler.match(make("b", [*a.all_token_ids, 1, 2]), 0) == 48
    a.all_token_ids += [5, 6]
    host.compute(a, table(1, 4), 63, 64)
    assert host.scheduler.match(make("c", a.all_token_ids), 0) == 64


def test_only_what_vllm_lacks_is_loaded(host):
    tokens = ids(161)
    a = make("a", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 10), 0, 160)
    b = make("b", tokens)
    assert host.load(b, table(30, 10, hidden=7), computed=96) == 64
    assert not host.tensors["a"][30].any()
    assert host.tensors["a"][36].any()
    assert host.scheduler.match(make("c", tokens), 160) == 0


def test_requests_that_are_not_cached(host):
    tokens = ids(65)
    a = make("a", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 4), 0, 64)
    assert host.scheduler.match(make("b", tokens, skip_reading_prefix_cache=True), 0) == 0
    assert host.scheduler.match(make("c", tokens, prompt_embeds=object()), 0) == 0
    assert host.scheduler.match(make("d", tokens, cache_salt="s"), 0) == 0
    lora = SimpleNamespace(lora_name="x", lora_path="/none")
    assert host.scheduler.match(make("e", tokens, lora_request=lora), 0) == 0
    place = SimpleNamespace(offset=3, length=9)
    image = SimpleNamespace(mm_position=place, identifier="h")
    assert host.scheduler.match(make("f", tokens, mm_features=[image]), 0) == 0
    assert host.scheduler.match(make("g", tokens), 0) == 64


def test_a_request_that_ends_while_it_is_loaded(host):
    tokens = ids(65)
    a = make("a", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 4), 0, 64)
    host.scheduler.finished(a)
    b = make("b", tokens)
    found = host.scheduler.match(b, 0)
    blocks = SimpleNamespace(get_block_ids=lambda: table(30, 4, hidden=1))
    host.scheduler.allocated(b, blocks, found)
    host.scheduler.finished(b)
    assert host.step().finished_recving == {"b"}
    assert host.link.session.stats()["Pools"][0]["Primary"]["Used"] == 0


def test_a_window_that_asks_for_more_than_was_found_fails_the_load(host):
    tokens = ids(161)
    a = make("a", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 10), 0, 160)
    assert host.load(make("b", tokens), table(30, 10, hidden=2)) == -1


def test_after_a_reset_nothing_of_before_is_found(host):
    tokens = ids(65)
    a = make("a", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 4), 0, 64)
    assert host.scheduler.reset()
    assert host.scheduler.match(make("b", tokens), 0) == 0
    host.compute(make("b", tokens), table(1, 4), 0, 64)
    assert host.scheduler.match(make("c", tokens), 0) == 64


def test_a_daemon_that_dies_between_match_and_load(host):
    tokens = ids(65)
    a = make("a", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 4), 0, 64)
    pid = int(host.link.session.attachment.pools[0].path.split("/")[2])
    b = make("b", tokens)
    assert host.scheduler.match(b, 0) == 64
    os.kill(pid, signal.SIGKILL)
    wait_for(host.worker._attached._channel.ended)
    blocks = SimpleNamespace(get_block_ids=lambda: table(30, 4, hidden=1))
    host.scheduler.allocated(b, blocks, 64)
    assert host.step().failed_recving == {"b"}
    host.compute(make("c", ids(65, 1)), table(1, 4), 0, 64)
    assert host.scheduler.match(make("d", tokens), 0) == 0


def test_retention_is_read_with_names():
    read = retention({"ranges": [{"start": 0, "end": 8, "priority": 80, "duration_ms": 5}]})
    assert read.ranges[0].priority == 80
    for value, wrong in (
        ({"ranges": [{"start": 0}]}, r"retention.ranges\[0\] needs a start and a priority"),
        ({"range": []}, "retention.range is unknown"),
        ([], "retention is not an object"),
        ({"decode_priority": "high"}, "retention.decode_priority is not a whole number"),
    ):
        with pytest.raises(ValueError, match=wrong):
            retention(value)


@pytest.fixture
def two():
    """Two vLLMs with a daemon whose memory is soon full."""
    with kvactor.spawn("1MiB", options={"quiet": True}) as daemon:
        hosts = Host(daemon.path, (FULL,)), Host(daemon.path, (FULL,))
        yield hosts
        for found in hosts:
            found.close()


def fill(host, requests):
    """Computes prompts of 160 tokens, one after the other, and returns their requests."""
    made = [make(f"x{i}", ids(161, 100 + i)) for i in range(requests)]
    for request in made:
        host.scheduler.match(request, 0)
        host.compute(request, (list(range(1, 11)),), 0, 160)
        host.scheduler.finished(request)
    host.step()
    return made


def wrong_blocks(host, requests):
    """How many blocks of what is found of requests have other contents."""
    wrong = 0
    for request in requests:
        again = make("y" + request.request_id, request.all_token_ids)
        found = host.load(again, (list(range(30, 40)),))
        for i in range(max(found, 0) // BLOCK):
            wrong += not (host.tensors["a"][30 + i] == content(again, "a", i)).all()
        host.scheduler.finished(again)
        host.step()
    return wrong


def begin_load(host):
    """A request whose prefix is with the daemon, up to the work that loads it."""
    tokens = ids(65)
    a, b = make("a", tokens), make("b", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, (list(range(1, 5)),), 0, 64)
    host.scheduler.finished(a)
    host.step()
    blocks = SimpleNamespace(get_block_ids=lambda: (list(range(30, 34)),))
    host.scheduler.allocated(b, blocks, host.scheduler.match(b, 0))
    return host.plan()


def test_a_load_that_begins_after_its_session_has_ended_fails(two):
    host, other = two
    work = begin_load(host)
    host.link.lost(1, "no answer in time")
    wait_for(lambda: host.worker._attached._ended)
    fill(other, 20)
    done = host.work(work)
    assert done.finished_recving == done.failed_recving == {"b"}


def test_pages_stay_while_a_load_runs_whose_session_has_ended(two):
    host, other = two
    work = begin_load(host)
    copy = host.worker._transfers.copy

    def slowly(*what):
        host.link.lost(1, "no answer in time")
        wait_for(host.worker._attached._channel.ended)
        fill(other, 20)
        return copy(*what)

    host.worker._transfers.copy = slowly
    done = host.work(work)
    assert done.failed_recving == {"b"}
    for i in range(4):
        assert (host.tensors["a"][30 + i] == content(make("b", ids(65)), "a", i)).all()


def test_a_save_that_begins_after_its_session_has_ended_writes_nothing(two):
    host, other = two
    a = make("a", ids(961))
    host.scheduler.match(a, 0)
    new = SimpleNamespace(req_id="a", num_computed_tokens=0)
    work = host.plan([new], {"a": 960}, (list(range(1, 61)),))
    assert work.saves
    host.link.lost(1, "no answer in time")  # while the model computes
    wait_for(lambda: other.link.session.stats()["Pools"][0]["Primary"]["Used"] == 0)
    kept = fill(other, 6)
    for tensor in host.tensors.values():
        tensor[:] = -1
    host.work(work)
    assert wrong_blocks(other, kept) == 0


def test_pages_stay_while_a_save_runs_whose_session_has_ended(two):
    host, other = two
    host.step()  # attaches
    a = make("a", ids(961))
    host.scheduler.match(a, 0)
    new = SimpleNamespace(req_id="a", num_computed_tokens=0)
    work = host.plan([new], {"a": 960}, (list(range(1, 61)),))
    copy, kept = host.worker._transfers.copy, []

    def slowly(*what):
        host.link.lost(1, "no answer in time")
        wait_for(host.worker._attached._channel.ended)
        kept.extend(fill(other, 6))
        return copy(*what)

    for tensor in host.tensors.values():
        tensor[:] = -1
    host.worker._transfers.copy = slowly
    host.work(work)
    assert kept
    assert wrong_blocks(other, kept) == 0
    assert other.scheduler.match(make("z", a.all_token_ids), 0) == 0


def test_a_reset_releases_claims(host):
    tokens = ids(65)
    a, b = make("a", tokens), make("b", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 4), 0, 64)
    host.scheduler.finished(a)
    assert host.scheduler.match(b, 0) == 64  # vLLM has no blocks for it: it waits
    host.scheduler.reset()
    host.scheduler.match(b, 0)
    host.scheduler.finished(b)
    host.step()
    assert handles(host) == 0


def test_a_reset_releases_what_is_loaded_when_it_has_ended(host):
    tokens = ids(65)
    a, b = make("a", tokens), make("b", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 4), 0, 64)
    host.scheduler.finished(a)
    blocks = SimpleNamespace(get_block_ids=lambda: table(30, 4, hidden=1))
    host.scheduler.allocated(b, blocks, host.scheduler.match(b, 0))
    host.scheduler.reset()
    assert handles(host) == 1
    host.step()
    host.step()
    assert handles(host) == 0


def test_a_reset_releases_what_is_written_when_it_has_ended(host):
    tokens = ids(65)
    a = make("a", tokens)
    host.scheduler.match(a, 0)
    new = SimpleNamespace(req_id="a", num_computed_tokens=0)
    work = host.plan([new], {"a": 64}, table(1, 4))
    host.scheduler.reset()
    assert handles(host) == 1
    host.work(work)
    host.compute(a, table(1, 4), 0, 64)
    assert host.scheduler.match(make("b", tokens), 0) == 64
    host.scheduler.finished(a)
    host.scheduler.match(make("b", ids(9)), 0)
    host.step()
    assert host.link.session.stats()["Pools"][0]["Primary"]["Used"] <= 8  # of b's claim


def test_a_preempted_request_loads_what_it_has_computed(host):
    tokens = ids(161)
    a = make("a", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 10), 0, 96)
    into = table(30, 10, hidden=3)
    assert host.load(a, into) == 96
    for name in FULL.layers:
        for n, block in enumerate(into[0][:6]):
            assert (host.tensors[name][block] == content(a, name, n)).all()
    host.compute(a, into, 96, 160)
    host.scheduler.finished(a)
    assert host.scheduler.match(make("b", tokens), 0) == 160


def test_a_request_preempted_while_a_step_saves_is_computed(host):
    a = make("a", ids(161))
    host.scheduler.match(a, 0)
    new = SimpleNamespace(req_id="a", num_computed_tokens=0)
    work = host.plan([new], {"a": 96}, table(1, 10))
    assert host.scheduler.match(a, 0) == 0
    host.work(work)
    assert host.load(a, table(30, 10, hidden=3)) == 96


def test_counts_are_on_the_page_of_vllm():
    registry = prometheus_client.CollectorRegistry()
    kinds = (prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram)
    types = {kind: partial(kind, registry=registry) for kind in kinds}
    config = SimpleNamespace(kv_transfer_config=None)
    found = PromMetrics(config, types, ["engine"], {0: ["0"], 1: ["1"]})
    stats = TransferStats()
    for _ in range(2):
        stats.add("matches", 3)
        stats.data[GAUGE] = 1
        found.observe(stats.take().data, 1)
    page = prometheus_client.generate_latest(registry).decode()
    assert 'vllm:kvactor_matches_total{engine="1"} 6.0' in page
    assert 'vllm:kvactor_matches_total{engine="0"} 0.0' in page
    assert 'vllm:kvactor_connected{engine="1"} 1.0' in page
    assert stats.take() is None
