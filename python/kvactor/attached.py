"""The memory of a session in a process that copies for it and has not the session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kvactor import wire
from kvactor.errors import RefusedError, UnreachableError
from kvactor.mapping import Attachment, Memory

ATTACH_SECONDS = 1.0


class Attached:
    """Maps the memory of a session and keeps its pages from reuse while copies run.

    The daemon gives the pages of a session's claims and unfinished writes to others when
    the session has ended and all that have attached to it have closed. This connection
    reads the end of the session on a thread of its own, and closes when the copies that
    were under way have ended. Any thread may copy.

    memory: the pages, as one rank sees them.

    Raises RefusedError if the session has ended, and UnreachableError if the daemon is
    gone or does not answer within the deadline, in seconds.
    """

    def __init__(
        self, attachment: Attachment, rank: int = 0, deadline: float = ATTACH_SECONDS
    ) -> None:
        # The daemon accepts only if it has lived since the session was opened, so the files
        # that are mapped before are the daemon's.
        self.memory = Memory(attachment, rank)
        self._copies = 0
        self._ended = False
        self._idle = threading.Condition()
        self._channel = wire.Channel(attachment.path, deadline)
        try:
            _ask(self._channel, attachment.key)
        except BaseException:
            self._channel.close()
            raise
        self._thread = threading.Thread(target=self._watch, name="kvactor-attached", daemon=True)
        self._thread.start()

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Copies from and to pages run within the block, to their ends.

        Raises UnreachableError, and does not run the block, if the session has ended; and
        behind the block if it has ended meanwhile, or close was called. What was copied is
        of no use then.
        """
        with self._idle:
            if self._ended or self._channel.ended():
                raise UnreachableError("the session has ended")
            self._copies += 1
        try:
            yield
            if self._channel.ended():
                raise UnreachableError("the session has ended during a copy")
        finally:
            with self._idle:
                self._copies -= 1
                self._idle.notify_all()

    def close(self) -> None:
        """Returns when no copy runs any more and the connection is closed."""
        self._channel.stop_reading()
        self._thread.join()
        self.memory.close()

    def _watch(self) -> None:
        self._channel.wait_for_end()
        with self._idle:
            self._ended = True
            self._idle.wait_for(lambda: self._copies == 0)
        self._channel.close()


def _ask(channel: wire.Channel, key: bytes) -> None:
    request = wire.Request()
    request.attach.version, request.attach.key = wire.VERSION, key
    channel.send(request)
    answer = channel.receive()
    if answer.HasField("error"):
        raise RefusedError(answer.error.code, answer.error.message)
