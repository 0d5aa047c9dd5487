#!/usr/bin/env python3
"""A host application with PyTorch: its KV tensors, stream and kernels, kvactor's engine.

    host.py LIBRARY [REQUESTS] [SEED]

Conversations come back again and again while device memory holds a part of them and host
memory more. Each request waits for its pages on PyTorch's stream, compares what it reuses with
what must be there, and writes the rest. Nothing but the tickets orders the kernels and the
engine's copies; wrong values are counted on the device and read once, at the end. Meanwhile
another thread captures CUDA graphs, allocates, and replays them.

The same runs with a tensor for each layer, with layers of one tensor and host memory that
PyTorch has pinned, and with the engine's own memory under PyTorch's kernels. With
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True the tensors are in expandable segments.
"""
import ctypes
import random
import sys
import threading
import time

import numpy
import torch

LAYERS, HEADS, DIM, TOKENS = 6, 2, 64, 16
DEVICE_PAGES, HOST_PAGES = 256, 512


class Memory:
    """The engine's device memory, as PyTorch takes it."""

    def __init__(self, address):
        self.__cuda_array_interface__ = {
            "shape": (DEVICE_PAGES, LAYERS, 2, HEADS, TOKENS, DIM), "typestr": "<i2",
            "data": (address, False), "version": 3,
        }


class Engine:
    """The library, with an engine of one configuration."""

    def __init__(self, library, stream, layers=None, pinned=None):
        self.library = library
        library.kv_admit.restype = ctypes.c_int64
        addresses = numpy.array([t.data_ptr() for t in layers or []], numpy.uint64)
        shape = numpy.array([
            LAYERS, HEADS, DIM, TOKENS, DEVICE_PAGES, HOST_PAGES, stream.cuda_stream,
            pinned.data_ptr() if pinned is not None else 0,
            addresses.ctypes.data if layers else 0,
        ], numpy.uint64)
        base = ctypes.c_uint64()
        self.check(library.kv_open(shape.ctypes.data_as(ctypes.c_void_p), ctypes.byref(base)))
        self.layers = layers
        if not layers:
            memory = torch.as_tensor(Memory(base.value), device="cuda")
            assert memory.data_ptr() == base.value
            self.layers = [memory[:, i] for i in range(LAYERS)]
        self.table = numpy.zeros(8192 // TOKENS, numpy.int32)

    def check(self, result):
        if result < 0:
            sys.exit("the engine has refused a call")
        return result

    def admit(self, tokens):
        """Answers the sequence, its pages and how many tokens it reuses."""
        reused = ctypes.c_int32()
        number = self.check(self.library.kv_admit(
            tokens.ctypes.data_as(ctypes.c_void_p), len(tokens),
            self.table.ctypes.data_as(ctypes.c_void_p), ctypes.byref(reused)))
        return number, self.table[:(len(tokens) + TOKENS - 1) // TOKENS].copy(), reused.value

    def finish(self, number):
        self.check(self.library.kv_finish(ctypes.c_int64(number)))

    def stats(self):
        out = numpy.zeros(3, numpy.int64)
        self.check(self.library.kv_stats(out.ctypes.data_as(ctypes.c_void_p)))
        return out.tolist()

    def close(self):
        self.check(self.library.kv_close())


def prefix_hashes(tokens):
    """A value for each position that depends on all tokens up to it."""
    out, h = numpy.empty(len(tokens), numpy.int64), 7
    for i, token in enumerate(tokens.tolist()):
        h = (h * 1000003 + token + 1) % 2147483647
        out[i] = h
    return out


def values(hashes):
    """Keys and values of each layer for positions: layer, 2, position, head, element."""
    multiplier = torch.arange(1, LAYERS * 2 + 1, device="cuda").view(LAYERS, 2, 1, 1, 1)
    element = torch.arange(HEADS * DIM, device="cuda").view(1, 1, 1, HEADS, DIM)
    return ((hashes.view(1, 1, -1, 1, 1) * multiplier + element * 31) & 0x7FFF).to(torch.int16)


def to_device(array):
    return torch.from_numpy(array).pin_memory().to("cuda", non_blocking=True)


class Captures(threading.Thread):
    """Captures graphs, allocates in them, and replays them."""

    def __init__(self):
        super().__init__()
        self.ended, self.captured, self.error = threading.Event(), 0, None

    def run(self):
        try:
            self.capture()
        except Exception as error:  # shown by the main thread
            self.error = error

    def capture(self):
        stream = torch.cuda.Stream()
        n = 1 << 16
        source = torch.arange(n, device="cuda")
        while not self.ended.is_set():
            graph = torch.cuda.CUDAGraph()
            # A capture in the default mode, global, would forbid PyTorch's own allocations on the main thread.
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                total = (source * 2 + torch.ones_like(source)).sum()
            with torch.cuda.stream(stream):
                graph.replay()
            stream.synchronize()
            assert total.item() == n * (n - 1) + n
            self.captured += 1


class Host:
    """Requests of some conversations on one engine."""

    def __init__(self, engine, stream, seed):
        self.engine, self.stream, self.draw = engine, stream, random.Random(seed)
        self.wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        self.running, self.reused, self.compared = [], 0, 0
        self.conversations = [self.tokens(20, 200) for _ in range(60)]

    def tokens(self, low, high):
        return [self.draw.randrange(50000) for _ in range(self.draw.randrange(low, high))]

    def request(self):
        c = self.draw.choice(self.conversations)
        if len(c) > 700:
            del c[self.draw.randrange(1, 100):]
        c.extend(self.tokens(1, 60))
        tokens = numpy.array(c, numpy.int32)
        number, pages, reused = self.engine.admit(tokens)
        self.compute(tokens, pages, reused)
        self.running.append(number)
        while len(self.running) > self.draw.randrange(1, 5):
            self.engine.finish(self.running.pop(self.draw.randrange(len(self.running))))

    def compute(self, tokens, pages, reused):
        """Compares what is reused and writes the rest, as kernels of a model would."""
        position = numpy.arange(len(tokens))
        page, slot = to_device(pages[position // TOKENS].astype(numpy.int64)), to_device(position % TOKENS)
        want = values(to_device(prefix_hashes(tokens)))
        for i, layer in enumerate(self.engine.layers):
            for kv in range(2):
                view = layer[:, kv]  # page, head, slot, element
                if reused:
                    self.wrong += (view[page[:reused], :, slot[:reused]] != want[i, kv, :reused]).sum()
                view[page[reused:], :, slot[reused:]] = want[i, kv, reused:]
        self.reused += reused
        self.compared += reused * LAYERS * 2 * HEADS * DIM

    def end(self):
        for number in self.running:
            self.engine.finish(number)
        self.stream.synchronize()


def run(library, name, requests, seed, layers=None, pinned=None):
    stream = torch.cuda.Stream()
    engine = Engine(library, stream, layers, pinned)
    captures = Captures()
    captures.start()
    began = time.monotonic()
    with torch.cuda.stream(stream):
        host = Host(engine, stream, seed)
        for _ in range(requests):
            host.request()
        host.end()
    seconds = time.monotonic() - began
    captures.ended.set()
    captures.join()
    offloaded, onboarded, page_bytes = engine.stats()
    engine.close()
    found = host.wrong.item()
    print(f"{name}: {requests} requests in {seconds:.1f} s, {host.reused} tokens reused, pages of {page_bytes} bytes: "
          f"{offloaded} out, {onboarded} in; {captures.captured} graphs captured meanwhile; "
          f"{host.compared} values compared, {found} wrong", flush=True)
    if captures.error:
        sys.exit(f"{name}: a capture has failed: {captures.error}")
    if found or not onboarded or not host.reused or not captures.captured:
        sys.exit(f"{name}: failed")
    if layers:
        layers[0].fill_(1)  # they are PyTorch's again
        torch.cuda.synchronize()


def main():
    library = ctypes.CDLL(sys.argv[1])
    requests = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    print("PyTorch", torch.__version__, "on", torch.cuda.get_device_name(), flush=True)
    shape = (DEVICE_PAGES, 2, HEADS, TOKENS, DIM)
    run(library, "a tensor for each layer", requests, seed,
        layers=[torch.zeros(shape, dtype=torch.int16, device="cuda") for _ in range(LAYERS)])
    whole = torch.zeros((LAYERS, *shape), dtype=torch.int16, device="cuda")
    host_bytes = HOST_PAGES * whole[:, 0].numel() * whole.element_size()
    run(library, "layers of one tensor, host memory pinned by PyTorch", requests, seed + 1,
        layers=list(whole), pinned=torch.empty(host_bytes, dtype=torch.uint8, pin_memory=True))
    run(library, "the engine's own memory", requests, seed + 2)


if __name__ == "__main__":
    main()
