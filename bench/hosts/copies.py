"""Measures copies of blocks to pages beside one plain copy of as many bytes.

copies.py [--bytes N]: for blocks of 16 and of 128 tokens, 8 heads, 128 elements, bfloat16.
The best of five rounds each, to pages and back.
"""

import argparse
import time

import numpy as np

from kvactor.memory import Blocks, copy


def best(work) -> float:
    """The shortest of five times, in seconds."""
    found = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def main() -> None:
    """Prints a line for each size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, default=256 << 20, help="copied in a round")
    total = parser.parse_args().bytes
    for tokens in (16, 128):
        size = tokens * 8 * 2 * 128 * 2
        count = total // size
        host = np.ones((count, size), np.uint8)
        pages = np.ones((count, size), np.uint8)
        order = np.random.default_rng(0).permutation(count)
        source, target = Blocks.of_array(host), Blocks.of_array(pages)
        plain = best(lambda h=host, p=pages: np.copyto(p, h))
        out = best(lambda s=source, t=target, o=order: copy(t, range(len(o)), s, o))
        back = best(lambda s=source, t=target, o=order: copy(s, o, t, range(len(o))))
        moved = count * size / 1e9
        print(
            f"blocks of {size >> 10} KiB: plain {moved / plain:.1f} GB/s, to pages "
            f"{moved / out:.1f} ({plain / out:.2f}x), back {moved / back:.1f} ({plain / back:.2f}x)"
        )


if __name__ == "__main__":
    main()
