# ruff: noqa: F811
"""Requests whose inputs, parameters or adapters are unusual, against a daemon."""

import re
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("vllm")

from test_vllm import host, ids, make, table  # noqa: F401

from kvactor.vllm import once
from kvactor.vllm.adapters import Adapters
from kvactor.vllm.requests import Tracked


def image(start, n, h):
    return SimpleNamespace(mm_position=SimpleNamespace(offset=start, length=n), identifier=h)


def wait_for_session(host):
    until = time.monotonic() + 10
    while host.link.session is None and time.monotonic() < until:
        time.sleep(0.01)


@pytest.fixture
def warnings(caplog, monkeypatch):
    """Returns the warnings that requests have caused in a test."""
    monkeypatch.setattr(once, "_given", set())
    return lambda: [r.getMessage() for r in caplog.records if r.name.endswith("vllm.requests")]


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ([1], "kv_transfer_params is not an object"),
        (
            {"retention": {"ranges": [{"start": 0, "priority": -1}]}},
            r"retention.ranges\[0\].priority is not 0 to 100",
        ),
        (
            {"retention": {"ranges": [{"start": -5, "priority": 50}]}},
            r"retention.ranges\[0\].start is not 0 to",
        ),
        (
            {"retention": {"ranges": [{"start": 0, "priority": 50, "duration_ms": -1}]}},
            r"retention.ranges\[0\].duration_ms is not 1 to",
        ),
        ({"retention": {"decode_priority": 2**40}}, "retention.decode_priority is not 0 to 100"),
        ({"retention": {"ranges": 5}}, "retention.ranges is not a list"),
        (
            {"retention": {"ranges": [{"start": 0, "priority": 101}]}},
            r"retention.ranges\[0\].priority is not 0 to 100",
        ),
        (
            {
                "retention": {
                    "ranges": [
                        {"start": 0, "end": 10, "priority": 10},
                        {"start": 5, "end": 20, "priority": 20},
                    ]
                }
            },
            "retention.ranges has two that overlap",
        ),
        ({"session": "\ud800"}, "kv_transfer_params.session is not Unicode text"),
        ({"session": True}, "kv_transfer_params.session is not a string"),
        ({"session": 10**5000}, "kv_transfer_params.session is not a string"),
        ({"sesion": "a", "retention": {}}, "kv_transfer_params.sesion is unknown"),
    ],
)
def test_bad_parameters_raise_nothing_and_are_named(host, warnings, params, named):
    a = make("a", ids(65), kv_transfer_params=params)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 4), 0, 64)
    assert host.scheduler.match(make("b", ids(65)), 0) == 64
    (warning,) = warnings()
    assert re.match(f"kvactor: {named}", warning)


def test_parameters_of_no_effect_are_not_warned_of(host, warnings):
    for params in ({"retention": {"ranges": None}}, {"session": None}, {"session": 7}, {}, None):
        host.scheduler.match(make("a", ids(65), kv_transfer_params=params), 0)
    assert warnings() == []


def test_numbers_of_sessions_are_kept_apart(host):
    numbers = [99999999, 0x99999999, -5, 5, 2**31, 2**127]
    found = {
        Tracked.of(make("a", [1], kv_transfer_params={"session": n}), Adapters()).namespace.session
        for n in numbers
    }
    assert len(found) == len(numbers)


def test_image_in_second_chunk(host):
    tokens = ids(161)
    tokens[80:112] = [7] * 32
    a = make("a", tokens, mm_features=[image(80, 32, "cat")])
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 10), 0, 64)  # first chunk: no image in it
    host.compute(a, table(1, 10), 64, 160)  # extends
    text = make("t", tokens)  # the same tokens without an image
    assert host.scheduler.match(text, 0) <= 80
    same = make("s", tokens, mm_features=[image(80, 32, "cat")])
    assert host.scheduler.match(same, 0) == 160


def test_image_cut_by_chunk(host):
    tokens = ids(161)
    tokens[50:112] = [7] * 62
    a = make("a", tokens, mm_features=[image(50, 62, "cat")])
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 10), 0, 64)
    host.compute(a, table(1, 10), 64, 160)
    same = make("s", tokens, mm_features=[image(50, 62, "cat")])
    assert host.scheduler.match(same, 0) == 160


def test_streaming_session_gets_an_image(host):
    tokens = ids(65)
    a = make("a", list(tokens))
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 10), 0, 64)
    a.all_token_ids.extend([7] * 96)
    a.mm_features.append(image(65, 64, "cat"))
    host.compute(a, table(1, 10), 64, 160)
    t = make("t", list(a.all_token_ids))
    assert host.scheduler.match(t, 0) <= 64


def adapter(path, name="n"):
    return SimpleNamespace(lora_name=name, lora_path=str(path), lora_int_id=1, load_inplace=False)


def test_an_adapter_is_named_by_its_files(tmp_path):
    config, weights = tmp_path / "adapter_config.json", tmp_path / "adapter_model.bin"
    weights.write_bytes(b"x" * 5000)
    config.write_text('{"lora_alpha": 8}')
    first = Adapters().name(adapter(tmp_path))
    config.write_text('{"lora_alpha": 64}')
    second = Adapters().name(adapter(tmp_path))
    weights.write_bytes(b"y" * 5000)
    assert len({first, second, Adapters().name(adapter(tmp_path))}) == 3


def test_a_changed_adapter_that_was_not_loaded_again_has_no_name(tmp_path):
    weights, adapters = tmp_path / "adapter_model.bin", Adapters()
    weights.write_bytes(b"x" * 5000)
    assert adapters.name(adapter(tmp_path)) is not None
    weights.write_bytes(b"y" * 5000)
    assert adapters.name(adapter(tmp_path)) is None


def test_a_reset_keeps_adapters_apart(tmp_path):
    (tmp_path / "adapter_model.bin").write_bytes(b"x")
    found = set()
    for name in ("x#reset-1", "x#reset-2"):
        request = make("a", [1, 2], lora_request=adapter(tmp_path, name))
        tracked = Tracked.of(request, Adapters())
        tracked.rename("e")
        found.add(tracked.namespace.adapter)
    assert len(found) == 2


def test_a_request_whose_load_failed_is_computed(host):
    tokens = ids(161)
    a, b = make("a", tokens), make("b", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 10), 0, 160)
    assert host.load(b, table(30, 10, hidden=2)) == -1
    wait_for_session(host)
    c = make("c", tokens)
    assert host.scheduler.match(c, 0) > 0  # other requests are served
    host.scheduler.finished(c)
    for _ in range(3):
        assert host.load(b, table(30, 10, hidden=7)) == 0


def test_a_request_whose_load_failed_before_a_reset_is_computed(host):
    tokens = ids(161)
    a, b = make("a", tokens), make("b", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 10), 0, 160)
    assert host.load(b, table(30, 10, hidden=2)) == -1
    wait_for_session(host)
    assert host.scheduler.reset()
    c = make("c", tokens)
    assert host.scheduler.match(c, 0) == 0
    host.compute(c, table(1, 10), 0, 160)
    assert host.scheduler.match(make("d", tokens), 0) == 160
    assert host.load(b, table(30, 10, hidden=7)) == 0


def test_a_request_whose_load_fails_during_a_reset_is_computed(host):
    tokens = ids(161)
    a, b = make("a", tokens), make("b", tokens)
    host.scheduler.match(a, 0)
    host.compute(a, table(1, 10), 0, 160)
    blocks = SimpleNamespace(get_block_ids=lambda: table(30, 10, hidden=2))
    host.scheduler.allocated(b, blocks, host.scheduler.match(b, 0))
    assert host.scheduler.reset()
    assert host.step().failed_recving == {"b"}
    wait_for_session(host)
    c = make("c", tokens)
    assert host.scheduler.match(c, 0) == 0
    host.compute(c, table(1, 10), 0, 160)
    assert host.scheduler.match(make("d", tokens), 0) == 160
    assert host.load(b, table(30, 10, hidden=7)) == 0


def test_retention_has_either_name():
    config = {"token_range_retention_configs": [{"token_start": 0, "priority": 80}]}

    def read(**params):
        request = make("a", ids(48), kv_transfer_params=params)
        return Tracked.of(request, Adapters()).namespace.retention

    short = read(retention={"ranges": [{"start": 0, "priority": 80}]})
    assert short is not None
    assert short == read(kv_cache_retention_config=config)
    assert read(retention={}, kv_cache_retention_config=config) is None
    assert read(kv_cache_retention_config={"transfer_mode": "GDS"}) is None
