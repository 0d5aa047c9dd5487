"""A session that is opened again whenever it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from kvactor.client import Client, Session
from kvactor.errors import KvactorError, RefusedError
from kvactor.types import Group

RETRY_SECONDS = 1.0


class Counts(Protocol):
    """Where a link counts the seconds that its calls took."""

    def add(self, name: str, value: float) -> None:
        """Adds to a counter."""


class Link:
    """Opens sessions with the daemon at a path, one after the other.

    `session` is the present one, or None. Opening happens on a thread of the link, so
    a daemon that is not there, or accepts connections and says nothing, delays no one.
    The first attempt is made by the constructor, within the deadline.
    """

    def __init__(
        self,
        path: str,
        *,
        name: str,
        fingerprint: str,
        groups: Sequence[Group],
        ranks: int = 1,
        max_tokens: int = 1 << 20,
        deadline: float = 1.0,
        log: Callable[..., None] | None = None,
    ) -> None:
        self._path, self._name, self._fingerprint = path, name, fingerprint
        self._groups, self._ranks, self._max_tokens = tuple(groups), ranks, max_tokens
        self._deadline = deadline
        self._log = log or (lambda *_: None)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._lost = 0
        self._generation = 0
        self._said = ""
        self.session: Session | None = None
        self._open()
        self._thread = threading.Thread(target=self._run, name="kvactor-link", daemon=True)
        self._thread.start()

    @contextmanager
    def guard(self, session: Session, counts: Counts) -> Iterator[None]:
        """Ends the session if a call in the block fails, and counts its seconds.

        A refusal by the daemon is logged and ends the block, not the session.
        """
        began = time.perf_counter()
        try:
            yield
        except RefusedError as error:
            self._log("kvactor: the daemon refused: %s", error)
        except KvactorError as error:
            self.lost(session.generation, str(error))
        finally:
            counts.add("wire_seconds", time.perf_counter() - began)

    def lost(self, generation: int, why: str) -> None:
        """Ends the session of that number, if it is the present one."""
        with self._lock:
            session = self.session
            if session is None or session.generation != generation:
                return
            self.session = None
            self._lost += 1
        self._log("kvactor: the session ended (%s); prefixes are computed", why)
        session.close()
        self._wake.set()

    def take_lost(self) -> int:
        """Sessions that were lost since the last call."""
        with self._lock:
            lost, self._lost = self._lost, 0
        return lost

    def close(self) -> None:
        """Ends the session and looks for no other."""
        with self._lock:
            self._closed = True
            session, self.session = self.session, None
        self._wake.set()
        if session is not None:
            session.close()
        self._thread.join(2 * self._deadline)

    def _run(self) -> None:
        while not self._closed:
            if self.session is None:
                self._open()
            self._wake.wait(None if self.session is not None else RETRY_SECONDS)
            self._wake.clear()

    def _open(self) -> None:
        try:
            session = Client(self._path, self._deadline).open(
                self._name,
                self._fingerprint,
                self._groups,
                ranks=self._ranks,
                max_tokens=self._max_tokens,
            )
        except KvactorError as error:
            self._say(f"kvactor: no session with {self._path} ({error}); prefixes are computed")
            return
        with self._lock:
            if self._closed:
                session.close()
                return
            self._generation += 1
            session.generation = self._generation
            self.session = session
        self._say(f"kvactor: a session with {self._path}, number {self._generation}")

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._log("%s", text)
