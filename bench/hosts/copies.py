"""Measures copies of blocks to pages beside one plain copy of as many bytes.

copies.py [--bytes N] [--rounds N]: for blocks of 16 and of 128 tokens, 8 heads, 128
elements, bfloat16. A round is a plain copy, one to pages and one back. Prints the highest
rates, and the medians of the rates of a round in those of its plain copy.

A plain copy of that size passes by the caches, which glibc's memmove does from about 3/4 of
the last cache on, and a copy of a block does not: it reads the block that it overwrites, too.
With GLIBC_TUNABLES=glibc.cpu.x86_non_temporal_threshold=0x8000 both do.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from kvactor.memory import Blocks, copy


def seconds(work: Callable[[], object]) -> float:
    """What a piece of work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Prints a line for each size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, default=128 << 20, help="copied at a time")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    for tokens in (16, 128):
        size = tokens * 8 * 2 * 128 * 2
        count = options.bytes // size
        host = np.ones((count, size), np.uint8)
        pages = np.ones((count, size), np.uint8)
        order = np.random.default_rng(0).permutation(count)
        rates = measure(host, pages, order, options.rounds)
        line = f"blocks of {size >> 10} KiB: plain {max(rates['plain']):.1f} GB/s"
        for name in ("to pages", "back"):
            parts = [a / b for a, b in zip(rates[name], rates["plain"], strict=True)]
            line += f", {name} {max(rates[name]):.1f} ({statistics.median(parts):.2f}x)"
        print(line)


def measure(
    host: np.ndarray, pages: np.ndarray, order: np.ndarray, rounds: int
) -> dict[str, list[float]]:
    """The rates of each round, in GB/s."""
    source, target = Blocks.of_array(host), Blocks.of_array(pages)
    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: np.copyto(pages, host),
        "to pages": lambda: copy(target, range(len(order)), source, order),
        "back": lambda: copy(source, order, target, range(len(order))),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            found[name].append(host.nbytes / 1e9 / seconds(work))
    return found


if __name__ == "__main__":
    main()
