"""What the connector reads of a request of vLLM, and remembers of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger

from kvactor.client import Match
from kvactor.retention import printable, retention, tensorrt_llm
from kvactor.types import Item, Prompt, Range, Retention
from kvactor.vllm.adapters import Adapters
from kvactor.vllm.once import warn_once
from kvactor.wire import pack

if TYPE_CHECKING:
    from vllm.v1.request import Request

logger = init_logger(f"vllm.{__name__}")

EPOCH = "#reset-"
"""Stands between the name of an adapter and that of a reset."""

PARAMETERS = ("session", "retention", "kv_cache_retention_config")
"""What kv_transfer_params may have."""

MAX_UNKNOWN = 16  # unknown parameters of a request that are named
MAX_NUMBER = 2**128  # of a session whose name is a number; UUIDs are below it
MAX_TEXT = 1024  # bytes of a salt and of a session


@dataclass
class Tracked:
    """A request and what the daemon has of it.

    adapter: names its adapter, before a reset.
    stored: leading blocks that the daemon has or that are being written to it, in the
        session number `generation`.
    tried: blocks up to which pages were asked for, whether there were any or not.
    match: a claimed prefix. It covers tokens from `computed` on that vLLM lacks.
    since: when the daemon began to fetch the prefix from its store; 0 if it does not.
    loading: a worker copies the claimed pages.
    write: the handle under which the blocks of a prompt are written, chunk by chunk.
    writing: a worker copies to pages of the request.
    failed: a load of it failed, so it is computed.
    stale: its keys and values depend on what has changed since; nothing is saved.
    finished: vLLM has no such request any more.
    """

    request: Request
    namespace: Prompt
    adapter: str = ""
    stored: int = 0
    tried: int = 0
    generation: int = 0
    match: Match | None = None
    computed: int = 0
    since: float = 0.0
    loading: bool = False
    write: int = 0
    writing: bool = False
    failed: bool = False
    stale: bool = False
    finished: bool = False
    _inputs: tuple[Any, ...] = ()
    _packed: bytearray = field(default_factory=bytearray)

    @classmethod
    def of(cls, request: Request, adapters: Adapters) -> Tracked | None:
        """None if its keys and values depend on what cannot be named, or on embeddings."""
        if request.prompt_token_ids is None or request.prompt_embeds is not None:
            return None
        adapter = adapters.name(request.lora_request)
        if adapter is None:
            return None
        try:
            tracked = cls(request, _namespace(request, adapter), adapter)
            tracked._inputs = _inputs(request)
            tracked.tokens(0, len(request.all_token_ids))
        except ValueError as error:
            warn_once(logger, f"a request is computed: {error}")
            return None
        return tracked

    def refresh(self, adapters: Adapters) -> None:
        """Reads what has changed: further inputs of a streaming request, or its adapter."""
        if adapters.name(self.request.lora_request) != self.adapter:
            self.stale = True
        inputs = _inputs(self.request)
        if inputs == self._inputs:
            return
        self._inputs = inputs
        self._packed.clear()  # the last token of an answer is not part of the next prompt
        try:
            now = _namespace(self.request, self.adapter)
        except ValueError as error:
            warn_once(logger, f"a request is computed: {error}")
            self.stale = True
            return
        self.namespace = replace(self.namespace, items=now.items, retention=now.retention)

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

    def plain_after(self, tokens: int) -> bool:
        """Reports whether no item covers a token behind the first ones."""
        return all(item.end <= tokens for item in self.namespace.items)

    def rename(self, epoch: str) -> None:
        """Leaves the blocks of before a reset: from now on others are stored and found."""
        if epoch:
            self.namespace = replace(self.namespace, adapter=f"{self.adapter}{EPOCH}{epoch}")
            self.generation = -1  # as if the session were another one

    def follow(self, generation: int) -> None:
        """Forgets what another session had."""
        if self.generation != generation:
            self.generation, self.stored, self.tried = generation, 0, 0
            self.match, self.since, self.write = None, 0.0, 0
            self.writing = False


def _inputs(request: Request) -> tuple[Any, ...]:
    """What another input of a streaming request changes, its number of tokens first."""
    places = [(f.mm_position, f.identifier) for f in request.mm_features]
    return (request.num_prompt_tokens, *((p.offset, p.length, of) for p, of in places))


def _namespace(request: Request, adapter: str) -> Prompt:
    """What the keys and values of a request depend on. Raises ValueError for what is no key."""
    params = request.kv_transfer_params
    if params is not None and not isinstance(params, Mapping):
        warn_once(logger, "kv_transfer_params is not an object; it is ignored")
        params = None
    params = params or {}
    for key in [key for key in params if key not in PARAMETERS][:MAX_UNKNOWN]:
        warn_once(logger, f"kv_transfer_params.{printable(key)} is unknown; it is ignored")
    return Prompt(
        (),
        _text(request.cache_salt or "", "cache_salt"),
        adapter,
        _items(request),
        _session(request, params),
        _retention(request, params),
    )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a string")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{name} is not Unicode text") from None
    if size > MAX_TEXT:
        raise ValueError(f"{name} has more than {MAX_TEXT} bytes")
    return value


def _items(request: Request) -> tuple[Item, ...]:
    items = []
    for feature in request.mm_features:
        place = feature.mm_position
        if place.length:
            items.append(Item(place.offset, place.offset + place.length, feature.identifier))
    items.sort(key=lambda item: item.start)
    if any(a.end > b.start for a, b in pairwise(items)):
        raise ValueError("its multimodal inputs overlap")
    return tuple(items)


def _session(request: Request, params: Mapping[str, Any]) -> str:
    """The conversation of a request, or none with a warning if it has no proper name."""
    session = params.get("session")
    if session is None:
        session = getattr(request, "session_id", None) or ""
    if isinstance(session, int) and not isinstance(session, bool) and abs(session) < MAX_NUMBER:
        session = str(session)
    try:
        return _text(session, "kv_transfer_params.session")
    except ValueError as error:
        warn_once(logger, f"{error}; the request belongs to no session")
        return ""


def _read(params: Mapping[str, Any]) -> Retention | None:
    """The retention by either of its names. Raises ValueError for what is none."""
    if params.get("retention") is None:
        return tensorrt_llm(params.get("kv_cache_retention_config"))
    if params.get("kv_cache_retention_config") is not None:
        raise ValueError("retention and kv_cache_retention_config are two names of one parameter")
    return retention(params["retention"])


def _retention(request: Request, params: Mapping[str, Any]) -> Retention | None:
    """The retention of a request, or None with a warning if it cannot be read.

    What is generated belongs to the prompt of a later reservation, so its priority
    becomes a range behind the prompt.
    """
    try:
        read = _read(params)
    except ValueError as error:
        warn_once(logger, f"{error}; the request has no retention")
        return None
    if read is None:
        return None
    end = request.num_prompt_tokens
    ranges = [replace(r, end=min(end, end if r.end is None else r.end)) for r in read.ranges]
    ranges = [r for r in ranges if r.end is not None and r.start < r.end]
    if read.decode_priority is not None:
        ranges.append(Range(end, None, read.decode_priority, read.decode_duration_ms))
    return Retention(tuple(ranges)) if ranges else None
