"""A daemon as a child of this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from kvactor.client import Client, connect
from kvactor.errors import KvactorError, UnreachableError

START_SECONDS = 10.0

# The shell reads a pipe that this process holds open. When the process ends, however it
# does, the pipe ends, and the shell ends the daemon.
# The shell ends with the daemon, too.
_SHELL = """exec 3<&0; binary=$1; shift; "$binary" "$@" 3<&- & child=$!
{ cat <&3 >/dev/null; kill "$child" 2>/dev/null; } & watcher=$!
wait "$child"; status=$?; kill "$watcher" 2>/dev/null; exit $status"""


class NoDaemonError(KvactorError, FileNotFoundError):
    """There is no kvactord to start."""


def find() -> Path:
    """The path of kvactord: $KVACTORD, the one in this package, or one on $PATH."""
    named = os.environ.get("KVACTORD")
    if named:
        return Path(named)
    packaged = Path(__file__).parent / "bin" / "kvactord"
    if packaged.exists():
        return packaged
    found = shutil.which("kvactord")
    if found is None:
        raise NoDaemonError(
            "no kvactord in $KVACTORD, in the package or on $PATH: install Go and the package "
            "from its repository, or build ./cmd/kvactord"
        )
    return Path(found)


class Daemon:
    """A kvactord that ends with this process, or at stop.

    path: of its socket.
    """

    def __init__(self, command: Sequence[str], path: Path, folder: Path | None) -> None:
        self.path = path
        self._folder = folder
        self._child = subprocess.Popen(
            ["/bin/sh", "-c", _SHELL, "kvactord", *command], stdin=subprocess.PIPE
        )
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                connect(path)
            except UnreachableError:
                status = self._child.poll()
                if status is not None:
                    self.stop()
                    raise UnreachableError(f"kvactord ended with status {status}") from None
                if time.monotonic() > until:
                    self.stop()
                    raise
                time.sleep(0.02)
            else:
                return

    def connect(self, deadline: float = 5.0) -> Client:
        """A client of the daemon; see kvactor.connect."""
        return connect(self.path, deadline)

    def stop(self) -> None:
        """Ends the daemon in order, and waits for it."""
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):
            self._child.stdin.close()
        self._child.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Daemon:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def spawn(
    memory: str = "1GiB",
    *,
    socket: str | os.PathLike[str] = "",
    options: Mapping[str, str | bool] | None = None,
) -> Daemon:
    """Starts a daemon that ends with this process, and waits until it answers.

    memory: its size, such as 512MiB or 8GiB.
    socket: the path of its socket; by default one in a folder of its own.
    options: other flags of kvactord without their dashes: {"store": "file:///var/kv"}.
    """
    folder = None
    if not socket:
        folder = Path(tempfile.mkdtemp(prefix="kvactor-"))
        socket = folder / "socket"
    path = Path(socket)
    command = [str(find()), "--socket", str(path), "--memory", memory]
    for name, value in (options or {}).items():
        command.append(f"--{name}={str(value).lower() if isinstance(value, bool) else value}")
    return Daemon(command, path, folder)
