"""Reads the retention of a request from JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from kvactor.types import Range, Retention

MAX_RANGES = 1024
MAX_PRIORITY = 100
DEFAULT_PRIORITY = 35
MAX_TOKEN = 2**31 - 1
MAX_DURATION_MS = 100 * 365 * 24 * 3600 * 1000

TENSORRT_LLM = (
    "token_range_retention_configs",
    "decode_retention_priority",
    "decode_retention_policy",
    "decode_duration_ms",
    "transfer_mode",
    "directory",
)
"""The names of a KvCacheRetentionConfig."""


def retention(value: Any) -> Retention | None:
    """Reads a retention from an object.

    {"ranges": [{"start": 0, "end": 128, "priority": 80, "duration_ms": 60000}],
     "decode_priority": 35, "decode_duration_ms": 60000}, each part optional. Ranges are
    disjoint, priorities 0 to 100. Raises ValueError with the name of what is wrong.
    """
    if value is None:
        return None
    fields = _fields(value, "retention", ("ranges", "decode_priority", "decode_duration_ms"))
    entries = _list(fields, "retention", "ranges")
    listed = [_range(e, f"retention.ranges[{i}]") for i, e in enumerate(entries)]
    return Retention(
        _disjoint(listed, "retention.ranges"),
        _number(fields, "retention", "decode_priority", MAX_PRIORITY),
        _number(fields, "retention", "decode_duration_ms", MAX_DURATION_MS, least=1),
    )


def tensorrt_llm(value: Any) -> Retention | None:
    """Reads a retention by the names of TensorRT-LLM's KvCacheRetentionConfig.

    {"token_range_retention_configs": [{"token_start": 0, "token_end": 128, "priority": 80,
    "duration_ms": 60000}], "decode_retention_priority": 35, "decode_duration_ms": 60000}, each
    part optional but the start of a range. Priorities are 35 without one.
    decode_retention_policy, the name in TensorRT-LLM's documents, is decode_retention_priority.
    transfer_mode and directory may only ask for nothing. Raises ValueError with the name of
    what is wrong.
    """
    if value is None:
        return None
    name = "kv_cache_retention_config"
    fields = _fields(value, name, TENSORRT_LLM)
    for key, neutral in (("transfer_mode", "DRAM"), ("directory", "")):
        if fields.get(key) not in (None, neutral):
            raise ValueError(f"{name}.{key} is not supported: an option for debugging")
    old, new = fields.get("decode_retention_policy"), fields.get("decode_retention_priority")
    if old is not None and new is not None and old != new:
        raise ValueError(
            f"{name} has decode_retention_policy and decode_retention_priority, which differ"
        )
    key = "token_range_retention_configs"
    listed = [_token_range(e, f"{key}[{i}]") for i, e in enumerate(_list(fields, name, key))]
    ranges = _disjoint(listed, key)
    decode = "decode_retention_policy" if new is None else "decode_retention_priority"
    priority = _number(fields, name, decode, MAX_PRIORITY)
    duration = _number(fields, name, "decode_duration_ms", MAX_DURATION_MS, least=1)
    if priority is None and duration is not None:
        priority = DEFAULT_PRIORITY
    return Retention(ranges, priority, duration)


def _token_range(entry: Any, name: str) -> Range:
    """Reads a TokenRangeRetentionConfig."""
    fields = _fields(entry, name, ("token_start", "token_end", "priority", "duration_ms"))
    priority = fields.get("priority")
    renamed = {key.removeprefix("token_"): value for key, value in fields.items()}
    return _range({**renamed, "priority": DEFAULT_PRIORITY if priority is None else priority}, name)


def _range(entry: Any, name: str) -> Range:
    fields = _fields(entry, name, ("start", "end", "priority", "duration_ms"))
    start = _number(fields, name, "start", MAX_TOKEN)
    end = _number(fields, name, "end", MAX_TOKEN)
    priority = _number(fields, name, "priority", MAX_PRIORITY)
    duration = _number(fields, name, "duration_ms", MAX_DURATION_MS, least=1)
    if start is None or priority is None:
        raise ValueError(f"{name} needs a start and a priority")
    if end is not None and end <= start:
        raise ValueError(f"{name} is empty")
    return Range(start, end, priority, duration)


def _disjoint(ranges: Sequence[Range], name: str) -> tuple[Range, ...]:
    found = sorted(ranges, key=lambda r: r.start)
    for a, b in pairwise(found):
        if a.end is None or a.end > b.start:
            raise ValueError(f"{name} has two that overlap")
    return tuple(found)


def _list(fields: Mapping[str, Any], name: str, key: str) -> Sequence[Any]:
    listed = fields.get(key)
    if listed is None:
        return ()
    if not isinstance(listed, list | tuple):
        raise ValueError(f"{name}.{key} is not a list")
    if len(listed) > MAX_RANGES:
        raise ValueError(f"{name}.{key} has more than {MAX_RANGES} entries")
    return listed


def _fields(value: Any, name: str, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is not an object")
    for key in value:
        if key not in known:
            raise ValueError(f"{name}.{printable(key)} is unknown")
    return value


def printable(key: Any) -> str:
    """The beginning of a key for a log, in ASCII without control characters."""
    return ascii(str(key)[:40])[1:-1]


def _number(
    fields: Mapping[str, Any], name: str, key: str, most: int, *, least: int = 0
) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name}.{key} is not a whole number")
    if not least <= value <= most:
        raise ValueError(f"{name}.{key} is not {least} to {most}")
    return value
