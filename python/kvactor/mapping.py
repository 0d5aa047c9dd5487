"""The daemon's memory, mapped into this process."""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvactor.errors import UnreachableError
from kvactor.memory import Blocks

if TYPE_CHECKING:
    import torch

MADV_POPULATE_WRITE = 23
POPULATE_BYTES = 16 << 20  # at a time


@dataclass(frozen=True)
class Pool:
    """Memory of `pages` pages of `page_bytes` bytes, a file of `size` bytes at path."""

    name: str
    window: int
    page_bytes: int
    pages: int
    path: str
    size: int


@dataclass(frozen=True)
class Place:
    """Where a layer's block lies in a page of a pool: `size` bytes at offsets[rank]."""

    pool: int
    size: int
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Attachment:
    """What another process needs to copy for a session. Can be pickled.

    places: of the layers of each group, in the order of the session's groups.
    path: of the daemon's socket.
    key: a secret of the session, which admits a process to it.
    """

    pools: tuple[Pool, ...]
    places: tuple[tuple[Place, ...], ...]
    path: str = ""
    key: bytes = field(default=b"", repr=False)

    def groups_of(self, pool: int) -> list[int]:
        """The groups that have layers in a pool, in ascending order."""
        return [g for g, places in enumerate(self.places) if any(p.pool == pool for p in places)]


def attach(attachment: Attachment, rank: int = 0) -> Memory:
    """Maps the memory of a session. It stays readable when the daemon dies.

    A process that has not the session itself uses Attached to copy.
    """
    return Memory(attachment, rank)


class Memory:
    """The pages of all pools, as one rank sees them."""

    def __init__(self, attachment: Attachment, rank: int) -> None:
        self._attachment = attachment
        self._rank = rank
        self._maps = [_map(pool) for pool in attachment.pools]
        self._bytes: list[npt.NDArray[np.uint8]] = [np.frombuffer(m, np.uint8) for m in self._maps]

    def pages(self, group: int, layer: int) -> npt.NDArray[np.uint8]:
        """The blocks of a layer as an array of shape (pages, bytes)."""
        place = self._attachment.places[group][layer]
        pool = self._attachment.pools[place.pool]
        whole = self._bytes[place.pool][: pool.pages * pool.page_bytes]
        start = place.offsets[self._rank]
        return whole.reshape(pool.pages, pool.page_bytes)[:, start : start + place.size]

    def tensor(self, group: int, layer: int) -> torch.Tensor:
        """The blocks of a layer as a tensor of shape (pages, bytes) and type uint8."""
        import torch

        return torch.from_numpy(self.pages(group, layer))

    def layers(self, group: int) -> list[Blocks]:
        """The blocks of each layer of a group; block n lies in page n of its pool."""
        places = self._attachment.places[group]
        return [Blocks.of_array(self.pages(group, i)) for i in range(len(places))]

    def pools(self, group: int) -> list[int]:
        """The pool of each layer of a group."""
        return [place.pool for place in self._attachment.places[group]]

    def regions(self) -> list[tuple[int, int]]:
        """The address and the bytes of each pool's memory."""
        return [(b.ctypes.data, b.nbytes) for b in self._bytes]

    def populate(self) -> bool:
        """Maps all pages now. False if the system, Linux before 5.14, does not do that.

        A copy to a page for the first time takes three to four times as long as later ones,
        because the system maps its memory. This took 1.8 s for 512 MiB on two cores with much
        other work. Other threads run meanwhile; it ends early when the memory is closed.
        """
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        for mapped, pool in zip(list(self._maps), self._attachment.pools, strict=False):
            # The file is larger: the rest is address space, and memory when it is touched.
            whole = np.frombuffer(mapped, np.uint8)[: pool.pages * pool.page_bytes]
            for at in range(0, whole.nbytes, POPULATE_BYTES):
                if not self._maps:
                    return True
                size = min(POPULATE_BYTES, whole.nbytes - at)
                address = ctypes.c_void_p(whole.ctypes.data + at)
                if madvise(address, ctypes.c_size_t(size), MADV_POPULATE_WRITE) != 0:
                    return False
        return True

    def close(self) -> None:
        """Lets go of the memory. It is unmapped when no array refers to it."""
        self._bytes = []
        self._maps = []


def _map(pool: Pool) -> mmap.mmap:
    try:
        fd = os.open(pool.path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise UnreachableError(f"the memory of {pool.name}: {error}") from error
    try:
        if os.fstat(fd).st_size != pool.size:
            raise UnreachableError(f"the memory of {pool.name}: {pool.path} is another file")
        return mmap.mmap(fd, pool.size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    except (OSError, ValueError) as error:
        raise UnreachableError(f"the memory of {pool.name}: {error}") from error
    finally:
        os.close(fd)
