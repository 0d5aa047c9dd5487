"""Blocks of memory that lie a constant distance apart, and copies between them.

A host keeps the keys and values of a layer in one tensor with the block as its first
dimension. The daemon keeps a block of all layers of a group in one page. Both are
`Blocks`: so many blocks, each of one or several runs of bytes. `copy` moves a batch of
blocks from one to the other in one call.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Index = Sequence[int] | npt.NDArray[np.integer[Any]]

# Copies of fewer bytes than this stay on the calling thread. A thread that has to be
# woken takes about 50 µs, in which one core copies about half a megabyte.
PARALLEL_BYTES = 4 << 20

_threads: ThreadPoolExecutor | None = None
_workers = max(1, min(4, len(os.sched_getaffinity(0))))


@dataclass(frozen=True)
class Blocks:
    """`count` blocks of memory, block i at `address + i * stride`, all in bytes.

    A block consists of the runs of `run` bytes that begin at `offsets` from its start;
    their concatenation, in that order, is its contents. `owner` keeps the memory alive.
    """

    address: int
    count: int
    stride: int
    run: int
    offsets: npt.NDArray[np.int64]
    owner: Any

    @property
    def block_bytes(self) -> int:
        """Bytes of the contents of one block."""
        return self.run * len(self.offsets)

    @classmethod
    def of_array(cls, array: npt.NDArray[Any]) -> Blocks:
        """The blocks of an array of shape (blocks, ...), in C order within a block."""
        return cls._of(array.ctypes.data, array.shape, array.strides, array.itemsize, array)

    @classmethod
    def of_tensor(cls, tensor: torch.Tensor) -> Blocks:
        """The blocks of a tensor of shape (blocks, ...) in the memory of the CPU."""
        if tensor.device.type != "cpu":
            raise ValueError(f"the tensor is on {tensor.device}, not in memory of the CPU")
        size = tensor.element_size()
        strides = tuple(s * size for s in tensor.stride())
        return cls._of(tensor.data_ptr(), tuple(tensor.shape), strides, size, tensor)

    @classmethod
    def _of(
        cls,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        itemsize: int,
        owner: Any,
    ) -> Blocks:
        if len(shape) < 2:
            raise ValueError(f"shape {shape} has no dimension beside that of the blocks")
        run, outer = itemsize, len(shape)
        while outer > 1 and (strides[outer - 1] == run or shape[outer - 1] == 1):
            outer -= 1
            run *= shape[outer]
        offsets = np.zeros(1, np.int64)
        for size, stride in zip(shape[1:outer], strides[1:outer], strict=True):
            steps = np.arange(size, dtype=np.int64) * stride
            offsets = (offsets[:, None] + steps[None, :]).reshape(-1)
        return cls(address, shape[0], strides[0], run, offsets, owner)

    def _addresses(self, index: Index, run: int) -> npt.NDArray[np.int64]:
        """The addresses of the runs of `run` bytes that the blocks of index consist of."""
        blocks = np.asarray(index, dtype=np.int64)
        if blocks.size and (int(blocks.min()) < 0 or int(blocks.max()) >= self.count):
            raise IndexError(f"block {blocks.min()} or {blocks.max()} of {self.count}")
        inner = np.arange(0, self.run, run, dtype=np.int64)
        offsets = (self.offsets[:, None] + inner[None, :]).reshape(-1)
        starts = self.address + blocks * self.stride
        return (starts[:, None] + offsets[None, :]).reshape(-1)


def copy(dst: Blocks, dst_index: Index, src: Blocks, src_index: Index) -> int:
    """Copies block src_index[i] of src to block dst_index[i] of dst, for each i.

    The contents of both must have the same number of bytes. Returns the bytes copied.
    The global interpreter lock is free while bytes move. Large batches are copied by up
    to four threads.
    """
    if dst.block_bytes != src.block_bytes:
        raise ValueError(f"blocks of {src.block_bytes} bytes to {dst.block_bytes} bytes")
    if len(dst_index) != len(src_index):
        raise ValueError(f"{len(src_index)} blocks to {len(dst_index)}")
    run = int(np.gcd(dst.run, src.run))
    to, start, sizes = _merge(dst._addresses(dst_index, run), src._addresses(src_index, run), run)
    total = len(dst_index) * dst.block_bytes
    if total < PARALLEL_BYTES or _workers == 1 or len(to) < 2 * _workers:
        _move(to, start, sizes)
        return total
    w = _workers
    parts = [(to[i::w], start[i::w], sizes[i::w]) for i in range(w)]
    list(_pool().map(lambda part: _move(*part), parts))
    return total


def _pool() -> ThreadPoolExecutor:
    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(_workers, "kvactor-copy")
    return _threads


def _merge(
    to: npt.NDArray[np.int64], start: npt.NDArray[np.int64], run: int
) -> tuple[list[int], list[int], list[int]]:
    """Joins runs that follow each other on both sides."""
    if len(to) == 0:
        return [], [], []
    breaks = (np.diff(to) != run) | (np.diff(start) != run)
    first = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    sizes = np.diff(np.concatenate((first, [len(to)]))) * run
    return to[first].tolist(), start[first].tolist(), sizes.tolist()


def _move(to: list[int], start: list[int], sizes: list[int]) -> None:
    memmove = ctypes.memmove
    for target, source, size in zip(to, start, sizes, strict=True):
        memmove(target, source, size)
