"""What the connector reads of a request of vLLM, and remembers of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger

from kvactor.client import Match
from kvactor.fingerprint import fingerprint
from kvactor.types import Item, Prompt, Range, Retention
from kvactor.wire import pack

if TYPE_CHECKING:
    from vllm.v1.request import Request

logger = init_logger(f"vllm.{__name__}")

EPOCH = "#reset-"
"""Stands between the name of an adapter and that of a reset."""


@dataclass
class Tracked:
    """A request and what the daemon has of it.

    stored: leading blocks that the daemon has or that are being written to it, in the
        session number `generation`.
    tried: blocks up to which pages were asked for, whether there were any or not.
    match: a claimed prefix. It covers tokens from `computed` on that vLLM lacks.
    since: when the daemon began to fetch the prefix from its store; 0 if it does not.
    loading: a worker copies the claimed pages.
    write: the handle under which the blocks of a prompt are written, chunk by chunk.
    writing: a worker copies to pages of the request.
    finished: vLLM has no such request any more.
    """

    request: Request
    namespace: Prompt
    stored: int = 0
    tried: int = 0
    generation: int = 0
    match: Match | None = None
    computed: int = 0
    since: float = 0.0
    loading: bool = False
    write: int = 0
    writing: bool = False
    finished: bool = False
    _packed: bytearray = field(default_factory=bytearray)

    @classmethod
    def of(cls, request: Request) -> Tracked | None:
        """None if the request's keys and values depend on more than tokens and items."""
        if request.prompt_token_ids is None or request.prompt_embeds is not None:
            return None
        return cls(request, _namespace(request))

    def tokens(self, first: int, last: int) -> bytes:
        """Tokens [first, last) of the request, generated ones too, packed."""
        known = len(self._packed) // 4
        if known < last:
            self._packed += pack(self.request.all_token_ids[known:last])
        return bytes(self._packed[4 * first : 4 * last])

    def prompt(self, tokens: int) -> Prompt:
        """The first so many tokens of the request, and what belongs to them."""
        items = tuple(
            replace(i, end=min(i.end, tokens)) for i in self.namespace.items if i.start < tokens
        )
        return replace(self.namespace, tokens=self.tokens(0, tokens), items=items)

    def rename(self, epoch: str) -> None:
        """Leaves the blocks of before a reset: from now on others are stored and found."""
        if epoch:
            name = self.namespace.adapter.split(EPOCH)[0]
            self.namespace = replace(self.namespace, adapter=f"{name}{EPOCH}{epoch}")
            self.generation = -1  # as if the session were another one

    def follow(self, generation: int) -> None:
        """Forgets what another session had."""
        if self.generation != generation:
            self.generation, self.stored, self.tried = generation, 0, 0
            self.match, self.since, self.write = None, 0.0, 0
            self.writing = False


def _namespace(request: Request) -> Prompt:
    params = request.kv_transfer_params or {}
    session = params.get("session") or getattr(request, "session_id", None) or ""
    adapter = ""
    if request.lora_request is not None:
        adapter = _adapter(request.lora_request.lora_name, request.lora_request.lora_path)
    items = []
    for feature in request.mm_features:
        place = feature.mm_position
        items.append(Item(place.offset, place.offset + place.length, feature.identifier))
    return Prompt(
        (),
        request.cache_salt or "",
        adapter,
        tuple(sorted(items, key=lambda item: item.start)),
        str(session),
        _retention(request, params),
    )


def _retention(request: Request, params: Mapping[str, Any]) -> Retention | None:
    """The retention of a request, or None with a warning if it cannot be read.

    What is generated belongs to the prompt of a later reservation, so its priority
    becomes a range behind the prompt.
    """
    try:
        read = retention(params.get("retention"))
    except ValueError as error:
        logger.warning("kvactor: %s; the request has no retention", error)
        return None
    if read is None:
        return None
    end = request.num_prompt_tokens
    ranges = [replace(r, end=min(end, end if r.end is None else r.end)) for r in read.ranges]
    if read.decode_priority is not None:
        ranges.append(Range(end, None, read.decode_priority, read.decode_duration_ms))
    return Retention(tuple(r for r in ranges if r.end is None or r.start < r.end))


@lru_cache(maxsize=1024)
def _adapter(name: str, path: str) -> str:
    return f"{name}:{fingerprint({'name': name, 'path': path}, path)}"


def retention(value: Any) -> Retention | None:
    """Reads the retention of kv_transfer_params.

    {"ranges": [{"start": 0, "end": 128, "priority": 80, "duration_ms": 60000}],
     "decode_priority": 35, "decode_duration_ms": 60000}, each part optional. Raises
    ValueError with the name of what is wrong.
    """
    if value is None:
        return None
    fields = _fields(value, "retention", {"ranges", "decode_priority", "decode_duration_ms"})
    ranges = []
    for i, entry in enumerate(fields.get("ranges", ())):
        name = f"retention.ranges[{i}]"
        r = _fields(entry, name, {"start", "end", "priority", "duration_ms"})
        start = _number(r, name, "start")
        priority = _number(r, name, "priority")
        if start is None or priority is None:
            raise ValueError(f"{name} needs a start and a priority")
        ranges.append(
            Range(start, _number(r, name, "end"), priority, _number(r, name, "duration_ms"))
        )
    return Retention(
        tuple(ranges),
        _number(fields, "retention", "decode_priority"),
        _number(fields, "retention", "decode_duration_ms"),
    )


def _fields(value: Any, name: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is not an object")
    unknown = sorted(set(value) - known)
    if unknown:
        raise ValueError(f"{name}.{unknown[0]} is unknown")
    return value


def _number(fields: Mapping[str, Any], name: str, key: str) -> int | None:
    value = fields.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{name}.{key} is not a whole number")
    return value
