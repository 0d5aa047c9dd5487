"""Measures round trips of matches to a daemon: one long prompt, and 64 in one message.

matches.py --daemon bin/kvactord [--rounds N] [--block N]

Prompts are stored before, and each match is released with the next message, as a host does.
Prints the least, the lower quartile and the median, in microseconds.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import kvactor
from kvactor.client import Session
from kvactor.types import Group, Prompt


def spent(work: Callable[[], None], rounds: int) -> str:
    """What rounds of work take."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    found.sort()
    return " / ".join(f"{1e6 * found[int(at * rounds)]:.0f}" for at in (0, 0.25, 0.5))


def store(session: Session, prompts: list[Prompt], block: int) -> None:
    """Writes prompts, whatever their pages have."""
    for prompt in prompts:
        whole = len(prompt.tokens) // block * block
        write = session.reserve(kvactor.Reserve(Prompt(prompt.tokens[:whole])))
        session.written(write.handle, whole)
        session.release(write.handle)
    session.drain()


def match(session: Session, prompts: list[Prompt], wanted: int) -> None:
    """Matches prompts in one message, and queues the release of what is claimed."""
    for found in session.ask(matches=prompts).matches:
        assert found.tokens == wanted, found
        session.release(found.handle)


def main() -> None:
    """Prints a line for each shape of a step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon", type=Path, required=True, help="a kvactord")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--block", type=int, default=128, help="tokens")
    options = parser.parse_args()
    os.environ["KVACTORD"] = str(options.daemon.resolve())
    r = np.random.default_rng(0)
    with kvactor.spawn("256MiB", options={"quiet": True}) as daemon:
        groups = [Group("full", options.block, (8 * options.block,) * 4)]
        session = daemon.connect().open("matches", "matches", groups, max_tokens=16384)
        for count, tokens in ((1, 8000), (64, 64), (64, 1000)):
            block = options.block
            arrays = [r.integers(0, 30000, tokens, np.int32) for _ in range(count)]
            if tokens > block:
                store(session, [Prompt(a) for a in arrays], block)
            wanted = (tokens - 1) // block * block
            rounds = options.rounds if count == 1 else options.rounds // 5
            for name, prompts in (
                ("arrays", [Prompt(a) for a in arrays]),
                ("lists", [Prompt(a.tolist()) for a in arrays]),
            ):
                match(session, prompts, wanted)
                line = spent(lambda p=prompts, w=wanted: match(session, p, w), rounds)
                print(f"{count} of {tokens} tokens as {name}: {line} µs")
        session.close()


if __name__ == "__main__":
    main()
