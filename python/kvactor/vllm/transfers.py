"""Copies between the blocks of vLLM's tensors and pages of the daemon's memory."""

from __future__ import annotations

from typing import Protocol

import torch

from kvactor.mapping import Memory
from kvactor.memory import Blocks, copy
from kvactor.vllm.metadata import Copy

Layers = list[list[torch.Tensor]]
"""The tensor of each layer of each group, shape (blocks, ...)."""


class Transfers(Protocol):
    """Moves batches of blocks of one group."""

    def use(self, memory: Memory) -> None:
        """Copies from and to this memory from now on."""

    def copy(self, work: Copy, to_pages: bool) -> int:
        """Starts to copy blocks to or from pages, and returns the bytes."""

    def finish(self) -> None:
        """Returns when the copies that were started are done."""


class CpuTransfers:
    """Copies between tensors in memory of the CPU and pages."""

    def __init__(self, layers: Layers) -> None:
        self._layers = [[Blocks.of_tensor(t) for t in group] for group in layers]
        self._pages: list[list[Blocks]] = []
        self._pools: list[list[int]] = []

    def use(self, memory: Memory) -> None:
        """See Transfers."""
        self._pages = [memory.layers(i) for i in range(len(self._layers))]
        self._pools = [memory.pools(i) for i in range(len(self._layers))]

    def copy(self, work: Copy, to_pages: bool) -> int:
        """See Transfers. The copies are done when it returns."""
        moved = 0
        g = work.group
        for layer, page, pool in zip(self._layers[g], self._pages[g], self._pools[g], strict=True):
            if pool != work.pool:
                continue
            if to_pages:
                moved += copy(page, work.pages, layer, work.blocks)
            else:
                moved += copy(layer, work.blocks, page, work.pages)
        return moved

    def finish(self) -> None:
        """See Transfers: there is nothing to wait for."""


class CudaTransfers:
    """Copies between tensors on a CUDA device and pages, on a stream of its own.

    The daemon's memory is registered with the device, so copies run at the speed of the
    link. A copy waits for the kernels that the current stream has been given before it,
    and finish waits for the copy. Not tried on a device by this project's tests.
    """

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._device = layers[0][0].device
        self._stream = torch.cuda.Stream(self._device)
        self._registered: list[int] = []
        self._pages: list[list[torch.Tensor]] = []
        self._pools: list[list[int]] = []

    def use(self, memory: Memory) -> None:
        """See Transfers. Registers the memory with the device, in place of the last one."""
        runtime = torch.cuda.cudart()
        for address in self._registered:
            runtime.cudaHostUnregister(address)
        self._registered = []
        for address, size in memory.regions():
            status = runtime.cudaHostRegister(address, size, 0)
            if int(status) != 0:
                raise RuntimeError(f"cudaHostRegister of {size} bytes: {status}")
            self._registered.append(address)
        self._pools = [memory.pools(i) for i in range(len(self._layers))]
        self._pages = [
            [shaped(memory.tensor(i, j), t) for j, t in enumerate(group)]
            for i, group in enumerate(self._layers)
        ]

    def copy(self, work: Copy, to_pages: bool) -> int:
        """See Transfers."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        moved = 0
        g = work.group
        with torch.cuda.stream(self._stream):
            for tensor, memory, pool in zip(
                self._layers[g], self._pages[g], self._pools[g], strict=True
            ):
                if pool == work.pool:
                    moved += copy_each(tensor, memory, work, to_pages)
        return moved

    def finish(self) -> None:
        """See Transfers."""
        self._stream.synchronize()


def shaped(pages: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Pages of shape (pages, bytes) as blocks of the type and shape of a layer's."""
    return pages.view(like.dtype).unflatten(1, like.shape[1:])


def copy_each(tensor: torch.Tensor, memory: torch.Tensor, work: Copy, to_pages: bool) -> int:
    """Queues a copy for each block on the current stream, and returns the bytes."""
    for block, page in zip(work.blocks, work.pages, strict=True):
        if to_pages:
            memory[page].copy_(tensor[block], non_blocking=True)
        else:
            tensor[block].copy_(memory[page], non_blocking=True)
    return len(work.blocks) * int(tensor[0].nbytes)
