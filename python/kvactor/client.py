"""A client of kvactord: sessions, what they ask for, and the memory that they share.

session = kvactor.connect(path).open("host", fingerprint, groups)
found = session.match(Prompt(tokens))           # pages that may be read
session.release(found.handle)
write = session.reserve(Reserve(Prompt(tokens)))  # pages that are to be written
session.written(write.handle, len(tokens))
session.release(write.handle)
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from kvactor import wire
from kvactor.errors import ProtocolError, RefusedError, UnreachableError
from kvactor.mapping import Attachment, Memory, Place, Pool, attach
from kvactor.types import Group, Kind, Prompt, Retention

T = TypeVar("T")

MAX_UNREAD = 64
"""Responses that are left unread. The daemon stops when the socket is full of them."""

Pages = list[npt.NDArray[np.int32]]
"""A table for each pool: a page for each block from the prompt's beginning, or NO_PAGE."""


@dataclass(slots=True)  # one frozen takes a microsecond more to make
class Match:
    """The longest stored prefix of a prompt.

    handle: a claim of its pages until it is released; 0 if there is nothing to claim.
    tokens: how many, in whole blocks; never all of the prompt.
    reason: why no more: hit, cold, evicted, window_hole, no_state or disabled.
    fetching: the store is being asked for more. Nothing is claimed; match again.
    """

    handle: int
    tokens: int
    pages: Pages
    reason: str = ""
    fetching: bool = False


@dataclass(frozen=True)
class Reserve:
    """A prompt of whole blocks that the client has computed, or is about to.

    tail: the client has no blocks any more that have left a window.
    """

    prompt: Prompt
    tail: bool = False


@dataclass(slots=True)  # one frozen takes a microsecond more to make
class Write:
    """Pages to be written.

    handle: the write, until it is released; 0 if all blocks are stored already.
    tokens: that are stored already.
    pages: NO_PAGE where there is nothing to write.
    """

    handle: int
    tokens: int
    pages: Pages


@dataclass(frozen=True)
class Extend:
    """Whole blocks that follow those of a write, all of which are written."""

    handle: int
    tokens: Sequence[int] | wire.Packed


@dataclass(frozen=True)
class Lookup:
    """What a match would find now, and how far the store's blocks reach, in tokens."""

    tokens: int
    stored_tokens: int


@dataclass
class Answers:
    """Answers in the order of what was asked. A refused entry has its error."""

    matches: list[Match | RefusedError] = field(default_factory=list)
    reserves: list[Write | RefusedError] = field(default_factory=list)
    extends: list[Pages | RefusedError] = field(default_factory=list)


class Client:
    """Connects to the daemon whose socket is at a path; each session is a connection."""

    def __init__(self, path: str | os.PathLike[str], deadline: float = 5.0) -> None:
        self.path = os.fspath(path)
        self.deadline = deadline

    def open(
        self,
        name: str,
        fingerprint: str,
        groups: Sequence[Group],
        *,
        ranks: int = 1,
        max_tokens: int = 1 << 20,
        private: bool = False,
    ) -> Session:
        """Begins a session.

        name: for the daemon's log and statistics.
        fingerprint: what pages depend on beside the tokens. Sessions with equal ones
            share blocks.
        ranks: of tensor parallelism; each has its part of every page.
        max_tokens: of the longest sequence.
        private: the session gets memory of its own, which ends with it.
        """
        channel = wire.Channel(self.path, self.deadline)
        try:
            return Session(channel, name, fingerprint, groups, ranks, max_tokens, private)
        except BaseException:
            channel.close()
            raise


def connect(path: str | os.PathLike[str], deadline: float = 5.0) -> Client:
    """A client of the daemon at a path. Calls wait for an answer up to deadline seconds.

    Raises UnreachableError if nothing listens there.
    """
    wire.Channel(os.fspath(path), deadline).close()
    return Client(path, deadline)


class Session:
    """A session with the daemon. Any thread may call it; one call at a time is served.

    A call that fails with another KvactorError than RefusedError has ended the session. The
    daemon takes back what it held, and forgets what was not written, when the session is
    closed here, and wherever a process has attached to it.
    """

    def __init__(
        self,
        channel: wire.Channel,
        name: str,
        fingerprint: str,
        groups: Sequence[Group],
        ranks: int,
        max_tokens: int,
        private: bool,
    ) -> None:
        self.generation = 0
        """A number that the owner of the session may give it."""
        self.open = True
        self._channel = channel
        self._lock = threading.Lock()
        self._id = 0
        self._unread = 0
        self._queue = _step()
        self._memory: dict[int, Memory] = {}
        request = wire.Request()
        ask = request.open
        ask.version, ask.name, ask.fingerprint = wire.VERSION, name, fingerprint
        ask.block_tokens = groups[0].block_tokens
        ask.max_tokens, ask.ranks, ask.private = max_tokens, ranks, private
        for group in groups:
            state = group.kind is Kind.STATE
            ask.groups.add(
                name=group.name,
                kind=int(state),
                window=group.window,
                layer_bytes=group.layer_bytes,
            )
        opened = self._exchange(request).open
        if opened.version != wire.VERSION:
            raise ProtocolError(f"the daemon speaks version {opened.version} of the wire")
        channel.limit = opened.limits.request_bytes or channel.limit
        self.engine: str = opened.engine
        self.attachment = Attachment(
            tuple(
                Pool(p.name, p.window, int(p.page_bytes), p.pages, p.path, int(p.bytes))
                for p in opened.pools
            ),
            tuple(
                tuple(Place(at.pool, int(at.bytes), tuple(at.offsets)) for at in group.layers)
                for group in opened.groups
            ),
            channel.path,
            bytes(opened.key),
        )

    def ask(
        self,
        matches: Sequence[Prompt] = (),
        reserves: Sequence[Reserve] = (),
        extends: Sequence[Extend] = (),
        fetch: bool = True,
    ) -> Answers:
        """Asks for several things in one message, with what written and release queued.

        fetch: blocks that only the store has are fetched; see Match.fetching.

        Raises ValueError or TypeError for what cannot be sent, and sends nothing then: the
        session goes on, and what is queued stays queued.
        """
        step = _step()  # before what is queued is taken: a prompt may not be one
        added = step.step.matches.add
        for prompt in matches:
            match = added()
            match.fetch = fetch
            if prompt.session:
                match.session = prompt.session
            _fill(match.prompt, prompt)
        for reserve in reserves:
            entry = step.step.reserves.add(tail=reserve.tail, session=reserve.prompt.session)
            _fill(entry.prompt, reserve.prompt)
            _retain(entry.retention, reserve.prompt.retention)
        for extend in extends:
            step.step.extends.add(handle=extend.handle, tokens=bytes(wire.pack(extend.tokens)))
        with self._lock:
            step.MergeFrom(self._take())
            answer = self._exchange(step).step
        return Answers(
            [_or_error(a, _match) for a in answer.matches],
            [_or_error(a, _write) for a in answer.reserves],
            [_or_error(a, _pages) for a in answer.extends],
        )

    def match(self, prompt: Prompt, fetch: bool = True) -> Match:
        """The longest stored prefix of a prompt, claimed until release."""
        return _one(self.ask(matches=[prompt], fetch=fetch).matches)

    def reserve(self, reserve: Reserve) -> Write:
        """Pages for the blocks of a prompt that are not stored."""
        return _one(self.ask(reserves=[reserve]).reserves)

    def extend(self, extend: Extend) -> Pages:
        """Pages for further blocks of a write; the tables begin with these."""
        return _one(self.ask(extends=[extend]).extends)

    def written(self, handle: int, tokens: int) -> None:
        """Queues that all pages of a write's first tokens have their bytes.

        tokens counts from the beginning of the prompt.
        """
        with self._lock:
            self._queue.step.written.add(handle=handle, tokens=tokens)

    def release(self, handle: int) -> None:
        """Queues the end of a claim or a write. Handle 0 is nothing."""
        if handle:
            with self._lock:
                self._queue.step.releases.append(handle)

    def flush(self) -> None:
        """Sends what is queued. Waits for an answer once in MAX_UNREAD times only."""
        with self._lock:
            step = self._queue.step
            if step.written or step.releases:
                if self._unread >= MAX_UNREAD:
                    self._exchange(self._take())
                else:
                    self._send(self._take())

    def drain(self) -> None:
        """Sends what is queued, and returns when it is served.

        Raises RefusedError if the daemon did not take what was written.
        """
        with self._lock:
            answer = self._exchange(self._take()).step
        for done in [*answer.written, *answer.releases]:
            _one([_or_error(done, bool)])

    def lookup(self, prompt: Prompt) -> Lookup:
        """What a match would find. Claims nothing, and leaves no use."""
        request = _step()
        _fill(request.step.lookups.add(), prompt)
        answer = self._call(request).step.lookups[0]
        return _one([_or_error(answer, lambda a: Lookup(a.tokens, a.stored_tokens))])

    def prefetch(self, prompt: Prompt) -> int:
        """Brings a prefix from the store and returns the tokens that are in memory then."""
        request = _step()
        _fill(request.step.prefetches.add(), prompt)
        answer = self._call(request, patience=60).step.prefetches[0]
        return _one([_or_error(answer, lambda a: int(a.tokens))])

    def pin(self, prompt: Prompt) -> tuple[int, int]:
        """Keeps the stored blocks of a prompt. Returns the pin and the tokens it keeps."""
        request = _step()
        _fill(request.step.pins.add(), prompt)
        answer = self._call(request).step.pins[0]
        return _one([_or_error(answer, lambda a: (int(a.pin), int(a.tokens)))])

    def unpin(self, pin: int) -> None:
        """Ends a pin."""
        request = _step()
        request.step.unpins.append(pin)
        _one([_or_error(self._call(request).step.unpins[0], lambda a: None)])

    def invalidate(
        self,
        *,
        session: str = "",
        salt: str = "",
        adapter: str | None = None,
        prefix: Prompt | None = None,
    ) -> int:
        """Forgets blocks: of a conversation, a salt, an adapter, or behind a prefix.

        Exactly one is given; a salt may limit an adapter. Returns the number of blocks.
        """
        request = _step()
        selector = request.step.invalidates.add(session=session, salt=salt)
        if adapter is not None:
            selector.adapter = adapter
        if prefix is not None:
            _fill(selector.prefix, prefix)
        answer = self._call(request).step.invalidates[0]
        return _one([_or_error(answer, lambda a: int(a.blocks))])

    def reset(self) -> None:
        """Forgets every stored block of the engine that nobody holds."""
        request = wire.Request()
        request.reset.SetInParent()
        self._call(request)

    def stats(self) -> dict[str, Any]:
        """The counters of the engine, as the daemon's page /stats has them."""
        request = wire.Request()
        request.stats.SetInParent()
        found: dict[str, Any] = json.loads(self._call(request).stats.json)
        return found

    def events(self, snapshot: bool = False) -> dict[str, Any]:
        """What has changed in the cache since the last call; all that is stored at first."""
        request = wire.Request()
        request.events.snapshot = snapshot
        found: dict[str, Any] = json.loads(self._call(request).events.json)
        return found

    def memory(self, rank: int = 0) -> Memory:
        """The memory of the pages, as one rank sees it. Mapped at the first call."""
        if rank not in self._memory:
            memory = attach(self.attachment, rank)
            if self._channel.ended():  # the files may be those of another process
                raise UnreachableError("the session has ended")
            self._memory[rank] = memory
        return self._memory[rank]

    def close(self) -> None:
        """Ends the session. No copy from or to its pages is under way in this process."""
        self.open = False
        self._channel.close()
        for memory in self._memory.values():
            memory.close()
        self._memory.clear()

    def _call(self, request: Any, patience: float = 0.0) -> Any:
        """Sends what is queued, then a request, and returns its response."""
        self.flush()
        with self._lock:
            return self._exchange(request, patience)

    def _take(self) -> Any:
        request, self._queue = self._queue, _step()
        return request

    def _send(self, request: Any) -> None:
        if not self.open:
            raise UnreachableError("the session is closed")
        self._id += 1
        request.id = self._id
        request.deadline_ms = int(self._channel.deadline * 1000)
        self._unread += 1
        try:
            self._channel.send(request)
        except BaseException:
            self.open = False
            raise

    def _exchange(self, request: Any, patience: float = 0.0) -> Any:
        self._send(request)
        try:
            while True:
                response = self._channel.receive(patience)
                self._unread -= 1
                if self._unread == 0:
                    break
        except BaseException:
            self.open = False
            raise
        if response.id != request.id:
            self.open = False
            raise ProtocolError(f"response {response.id} to request {request.id}")
        if response.HasField("error"):
            raise RefusedError(response.error.code, response.error.message)
        return response


def _step() -> Any:
    request = wire.Request()
    request.step.SetInParent()
    return request


def _fill(target: Any, prompt: Prompt) -> None:
    target.tokens = bytes(wire.pack(prompt.tokens))
    if prompt.salt:
        target.salt = prompt.salt
    if prompt.adapter:
        target.adapter = prompt.adapter
    for item in prompt.items:
        digest = hashlib.sha256(item.digest.encode(errors="surrogatepass")).digest()
        target.items.add(hash=digest, start=item.start, length=item.end - item.start)


def _retain(target: Any, retention: Retention | None) -> None:
    if retention is None:
        return
    for r in retention.ranges:
        entry = target.ranges.add(start=r.start, priority=r.priority)
        entry.duration_ms = r.duration_ms or 0
        if r.end is not None:
            entry.end = r.end
    if retention.decode_priority is not None:
        target.decode.priority = retention.decode_priority
        target.decode.duration_ms = retention.decode_duration_ms or 0


def _or_error(answer: Any, read: Callable[[Any], T]) -> T | RefusedError:
    if answer.HasField("error"):
        return RefusedError(answer.error.code, answer.error.message)
    return read(answer)


def _one(answers: Sequence[T | RefusedError]) -> T:
    answer = answers[0]
    if isinstance(answer, RefusedError):
        raise answer
    return answer


def _pages(answer: Any) -> Pages:
    return [wire.unpack(p) for p in answer.pages[:]]  # to iterate over the field takes longer


def _match(answer: Any) -> Match:
    return Match(int(answer.handle), answer.tokens, _pages(answer), answer.reason, answer.fetching)


def _write(answer: Any) -> Write:
    return Write(int(answer.handle), answer.tokens, _pages(answer))
