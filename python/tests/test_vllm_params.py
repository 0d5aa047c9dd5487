"""Arbitrary kv_transfer_params, against an oracle of what the documentation says."""

import math
import random
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("vllm")

from test_vllm import daemon_session, ids, make

from kvactor.client import Reserve
from kvactor.types import Item
from kvactor.vllm import once
from kvactor.vllm.adapters import Adapters
from kvactor.vllm.requests import Tracked

KEYS = (
    *("session", "retention", "ranges", "decode_priority", "decode_duration_ms"),
    *("start", "end", "priority", "duration_ms", "cache_salt", "adapter", "Session", "", "\n", "é"),
)
NUMBERS = (0, 1, -1, 16, 100, 101, 2**31 - 1, 2**31, 2**64, 10**30, 10**4000, 1.5, math.nan)
TEXTS = ("", "a", "chat-17", "0", "x" * 1024, "x" * 1025, "é" * 600, "\ud800", "\0", "null")


def arbitrary(r, depth=0):
    """A value of JSON."""
    kind = r.randrange(7 if depth < 4 else 4)
    if kind == 0:
        return r.choice((None, True, False))
    if kind == 1:
        return r.choice(NUMBERS)
    if kind == 2:
        return r.choice(TEXTS)
    if kind == 3:
        return r.randrange(0, 130)
    if kind == 4:
        return [arbitrary(r, depth + 1) for _ in range(r.randrange(4))]
    return {r.choice(KEYS): arbitrary(r, depth + 1) for _ in range(r.randrange(5))}


def likely(r):
    """Parameters of the documented form, with some parts replaced by others."""

    def perhaps(value):
        return arbitrary(r, 3) if r.random() < 0.1 else value

    def fields(**values):
        kept = {key: perhaps(value) for key, value in values.items() if r.random() < 0.8}
        if r.random() < 0.1:
            kept[r.choice(KEYS)] = arbitrary(r, 3)
        return kept

    ranges, at = [], 0
    for _ in range(r.randrange(4)):
        start, at = at + r.randrange(-2, 40), at + 40
        entry = fields(end=at, priority=r.randrange(101), duration_ms=r.randrange(1, 10**6))
        ranges.append({"start": max(0, start), **entry})
    r.shuffle(ranges)
    retention = fields(ranges=ranges, decode_priority=20, decode_duration_ms=1000)
    return fields(session=r.choice((*TEXTS, 5, 2**127)), retention=perhaps(retention))


def whole(value, least, most):
    return type(value) is int and least <= value <= most


def session_of(value):
    """The name of a session, or None if it is not one."""
    if type(value) is int:
        return str(value) if abs(value) < 2**128 else None
    if value is None:
        return ""
    if not isinstance(value, str) or len(value.encode(errors="replace")) > 1024:
        return None
    return None if any(0xD800 <= ord(c) < 0xE000 for c in value) else value


def is_retention(value):
    """Tells whether a retention is one."""
    century = 100 * 365 * 24 * 3600 * 1000
    if not isinstance(value, dict):
        return value is None
    if set(value) - {"ranges", "decode_priority", "decode_duration_ms"}:
        return False
    decode = value.get("decode_priority"), value.get("decode_duration_ms")
    if decode[0] is not None and not whole(decode[0], 0, 100):
        return False
    if decode[1] is not None and not whole(decode[1], 1, century):
        return False
    ranges = value.get("ranges") or []
    if not isinstance(value.get("ranges"), list | None):
        return False
    covered = []
    for entry in ranges:
        if not isinstance(entry, dict) or set(entry) - {"start", "end", "priority", "duration_ms"}:
            return False
        start, end = entry.get("start"), entry.get("end")
        if not whole(start, 0, 2**31 - 1) or not whole(entry.get("priority"), 0, 100):
            return False
        if end is not None and not whole(end, start + 1, 2**31 - 1):
            return False
        duration = entry.get("duration_ms")
        if duration is not None and not whole(duration, 1, century):
            return False
        covered.append((start, math.inf if end is None else end))
    return all(a is b or a[1] <= b[0] or b[1] <= a[0] for a in covered for b in covered)


@pytest.mark.parametrize("seed", range(4))
def test_arbitrary_parameters_are_read_or_named(seed, caplog, monkeypatch, daemon):
    r = random.Random(seed)
    session = daemon_session(daemon)
    place = SimpleNamespace(offset=2, length=5)
    features = [SimpleNamespace(mm_position=place, identifier="cat")]
    read = 0
    for case in range(400):
        params = likely(r) if case % 4 else arbitrary(r)
        monkeypatch.setattr(once, "_given", set())
        caplog.clear()
        request = make(
            "a", ids(48), cache_salt="s", mm_features=features, kv_transfer_params=params
        )
        tracked = Tracked.of(request, Adapters())
        where = f"seed {seed}, case {case}: {params!a:.2000}"
        assert tracked is not None, where
        of = tracked.namespace
        assert (of.salt, of.adapter, of.items) == ("s", "", (Item(2, 7, "cat"),)), where
        warnings = [record.getMessage() for record in caplog.records]
        expect_named(params, of, warnings, where)
        answer = session.ask(reserves=[Reserve(tracked.prompt(48))]).reserves[0]
        session.release(answer.handle)  # it is no error: the daemon takes what was read
        read += of.retention is not None
    assert read > 50
    session.close()


def expect_named(params, of, warnings, where):
    """What is wrong is named and without effect, and nothing else is named."""
    expected = 0
    if not isinstance(params, dict):
        expected += params is not None
        params = {}
    for key in set(params) - {"session", "retention"}:
        expected += 1
        assert any(f"kv_transfer_params.{ascii(key)[1:-1]} is" in w for w in warnings), where
    session = session_of(params.get("session"))
    assert of.session == (session or ""), where
    if session is None:
        expected += 1
        assert any("kv_transfer_params.session is not" in w or "has more" in w for w in warnings)
    if not is_retention(params.get("retention")):
        expected += 1
        assert of.retention is None, where
        assert any(w.startswith("kvactor: retention") for w in warnings), where
    assert len(warnings) == expected, (warnings, where)
