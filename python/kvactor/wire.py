"""The messages of the wire, and frames of them on a socket.

The classes are made from the compiled schema beside this file, so they work with any
release of the protobuf library; `python -m grpc_tools.protoc` with `-o` compiles it from
cmd/kvactord/wire/kvactord.proto.
"""

from __future__ import annotations

import array
import select
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kvactor.errors import ProtocolError, UnreachableError

VERSION = 1
FIRST_FRAME = 1 << 20
"""Bytes of a frame before the daemon has told its limit."""

INT32 = np.dtype("<i4")
MAX_TOKEN = 2**31 - 1
MAX_RESPONSE = 1 << 30
"""Bytes of a response; a longer one is taken for a broken daemon."""

Packed = bytes | bytearray | memoryview


def _messages() -> dict[str, Any]:
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(resources.files(__package__).joinpath("kvactord.desc").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    found: dict[str, Any] = {}
    for file in files.file:
        pool.Add(file)
        for message in file.message_type:
            descriptor = pool.FindMessageTypeByName(f"{file.package}.{message.name}")
            found[message.name] = message_factory.GetMessageClass(descriptor)
    return found


_classes = _messages()
Request = _classes["Request"]
Response = _classes["Response"]


def pack(tokens: Sequence[int] | npt.NDArray[Any] | Packed) -> Packed:
    """Token ids as 4 bytes each, little-endian. What is packed already stays as it is.

    An array of int32 takes a few microseconds for 8,000 tokens, a list half a millisecond.
    Raises ValueError for arrays that are not of integers, and for tokens of which 4 bytes
    would be others. The daemon refuses negative ones.
    """
    if isinstance(tokens, np.ndarray):
        if tokens.dtype == INT32:
            return tokens.tobytes()
        if not np.issubdtype(tokens.dtype, np.integer):
            raise ValueError(f"tokens are {tokens.dtype}, not integers")
        if tokens.size and not 0 <= tokens.min() <= tokens.max() <= MAX_TOKEN:
            raise ValueError(f"tokens are not all in 0 to {MAX_TOKEN}")
        return tokens.astype(INT32).tobytes()
    if isinstance(tokens, bytes | bytearray | memoryview):
        return tokens
    try:
        packed = array.array("i", tokens)
    except OverflowError:
        raise ValueError(f"tokens are not all in 0 to {MAX_TOKEN}") from None
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(pages: bytes) -> npt.NDArray[np.int32]:
    """Page numbers from the wire; -1 is no page."""
    return np.frombuffer(pages, INT32)


class Channel:
    """Frames over a Unix socket. One thread uses it at a time."""

    def __init__(self, path: str, deadline: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self.path = path
        self.deadline = deadline
        self.limit = FIRST_FRAME
        try:
            self._socket.settimeout(deadline)
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise UnreachableError(f"{path}: {error}") from error

    def send(self, message: Any) -> None:
        """Writes a frame. A failure leaves the channel of no use."""
        body = message.SerializeToString()
        if len(body) > self.limit:
            raise ProtocolError(f"a request of {len(body)} bytes, at most {self.limit}")
        try:
            self._socket.settimeout(self.deadline)
            self._socket.sendall(struct.pack("<I", len(body)))  # apart: a body may be large
            self._socket.sendall(body)
        except OSError as error:
            raise UnreachableError(_reason(error)) from error

    def receive(self, patience: float = 0.0) -> Any:
        """Reads a Response, for up to the deadline and so many seconds more."""
        try:
            self._socket.settimeout(self.deadline + patience)
            (size,) = struct.unpack("<I", self._read(4))
            if size > MAX_RESPONSE:
                raise ProtocolError(f"a response of {size} bytes, at most {MAX_RESPONSE}")
            body = self._read(size)
        except OSError as error:
            raise UnreachableError(_reason(error)) from error
        try:
            return Response.FromString(bytes(body))
        except DecodeError as error:
            raise ProtocolError("the daemon sent what is no message") from error

    def _read(self, size: int) -> bytearray:
        buffer = bytearray(size)
        view, got = memoryview(buffer), 0
        while got < size:
            n = self._socket.recv_into(view[got:])
            if n == 0:
                raise ConnectionResetError("the daemon closed the connection")
            got += n
        return buffer

    def ended(self) -> bool:
        """Tells whether the daemon has ended its side, or is gone."""
        return self._poll(0)

    def wait_for_end(self) -> None:
        """Returns when the daemon ends its side, or this side stops reading."""
        self._poll(None)

    def _poll(self, timeout: int | None) -> bool:
        if self._socket.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)  # POLLHUP and POLLERR come unasked
        return bool(poll.poll(timeout))

    def stop_reading(self) -> None:
        """Ends wait_for_end. The daemon does not see it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Closes the connection, also where a forked process has it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _reason(error: OSError) -> str:
    return "the daemon did not answer in time" if isinstance(error, TimeoutError) else str(error)
