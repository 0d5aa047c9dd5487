"""What is shown on unmodified vLLM servers: answers, hits, failures of the daemon, times."""

from __future__ import annotations

import random
import shutil
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from processes import Answer, Daemon, Server

LOGPROB = 1e-4
# Blocks of 128 tokens, so few that vLLM's own cache evicts. The Gemma's six layers take blocks
# of their own, and those with a window hold a whole chunk of a prompt.
TINY_CACHE = {"llama": 90, "gemma": 450}


@dataclass
class Setting:
    """Where things are, and how much is asked for."""

    binary: Path
    folder: Path
    memory: str
    conversations: int
    turns: int
    length: int
    kills: int
    clients: int = 8
    failures: list[str] = field(default_factory=list)

    def daemon(self, name: str, *options: str) -> Daemon:
        path = self.folder / f"{name}.sock"
        return Daemon(self.binary, path, self.folder / f"{name}.log", self.memory, *options)

    def server(self, model: Path, name: str, *options: str, daemon: Path | None = None) -> Server:
        log = self.folder / f"{model.name}-{name}.log"
        return Server(model, log, *options, daemon=daemon, length=self.length)

    def expect(self, holds: bool, what: str) -> None:
        """Prints what was to be shown, and remembers that it was not."""
        print(f"{'ok    ' if holds else 'FAILED'} {what}", flush=True)
        if not holds:
            self.failures.append(what)


def tiny(model: Path) -> tuple[str, str]:
    """The options of a server whose own cache evicts."""
    return "--num-gpu-blocks-override", str(TINY_CACHE[model.name])


Conversation = list[list[int]]
"""The tokens that the user adds in each turn."""


def conversations(s: Setting) -> list[Conversation]:
    """Conversations of random tokens; three in four begin with one of two prompts."""
    r = random.Random(7)
    shared = [[r.randrange(10, 31000) for _ in range(900)] for _ in range(2)]
    found = []
    for i in range(s.conversations):
        turns = [
            [r.randrange(10, 31000) for _ in range(r.randrange(100, 500))] for _ in range(s.turns)
        ]
        if i % 4:
            turns[0] = shared[i % 2] + turns[0]
        found.append(turns)
    return found


def play(server: Server, chats: list[Conversation], clients: int) -> list[list[Answer]]:
    """Plays the conversations, so many at a time, and returns the answers of each."""

    def one(chat: Conversation) -> list[Answer]:
        context: list[int] = []
        answers = []
        for turn in chat:
            context = context + turn
            answer = server.complete(context, 8)
            context = context + answer.tokens
            answers.append(answer)
        return answers

    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(one, chats))


def same(a: list[list[Answer]], b: list[list[Answer]]) -> tuple[int, int, float]:
    """Answers, those whose tokens are the same, and the largest difference of logprobs."""
    pairs = [
        (x, y) for left, right in zip(a, b, strict=True) for x, y in zip(left, right, strict=True)
    ]
    equal = sum(x.tokens == y.tokens and len(x.tokens) > 0 for x, y in pairs)
    return (
        len(pairs),
        equal,
        max(abs(p - q) for x, y in pairs for p, q in zip(x.logprobs, y.logprobs, strict=True)),
    )


def compare(s: Setting, what: str, got: list[list[Answer]], base: list[list[Answer]]) -> None:
    total, equal, difference = same(got, base)
    cached = sum(a.cached for chat in got for a in chat)
    s.expect(
        equal == total and difference <= LOGPROB,
        f"{what}: {equal} of {total} answers token for token, logprobs within {difference:.1e}, "
        f"{cached} tokens of prompts not computed",
    )


def run(s: Setting, model: Path) -> None:
    """All that is shown of one model."""
    print(f"-- {model.name}", flush=True)
    chats = conversations(s)
    server = s.server(model, "alone", *tiny(model))
    try:
        server.complete(list(range(10, 2000)), 2)
        base = play(server, chats, s.clients)
    finally:
        server.stop()
    store = s.folder / f"{model.name}-store"
    shutil.rmtree(store, ignore_errors=True)
    options = ("--store", f"file://{store}")
    daemon = s.daemon(model.name, *options)
    try:
        _with_daemon(s, model, chats, base, daemon)
        daemon = _killed(s, model, chats, base, daemon, options)
    finally:
        daemon.stop()


def _with_daemon(
    s: Setting, model: Path, chats: list[Conversation], base: list[list[Answer]], daemon: Daemon
) -> None:
    first = s.server(model, "first", *tiny(model), daemon=daemon.path)
    try:
        compare(s, "connector, vLLM's cache small", play(first, chats, s.clients), base)
        compare(s, "connector, again", play(first, chats, s.clients), base)
        second = s.server(model, "second", "--no-enable-prefix-caching", daemon=daemon.path)
        try:
            answer = second.complete(chats[1][0], 8)
            want = len(chats[1][0]) // 128 * 128
            s.expect(answer.cached >= want, f"another vLLM hits at once: {answer.cached} tokens")
            compare(s, "vLLM's cache off", play(second, chats, s.clients), base)
        finally:
            second.stop()
        times(s, first)
    finally:
        first.kill()


def _killed(
    s: Setting,
    model: Path,
    chats: list[Conversation],
    base: list[list[Answer]],
    daemon: Daemon,
    options: tuple[str, ...],
) -> Daemon:
    """Kills the daemon under load, and starts it again each time."""
    server = s.server(model, "restarted", *tiny(model), daemon=daemon.path)
    try:
        answer = server.complete(chats[1][0], 8)
        s.expect(answer.cached > 0, f"vLLM restarted hits at once: {answer.cached} tokens")
        got: list[list[Answer]] = []
        failed: list[BaseException] = []

        def load() -> None:
            try:
                while len(got) < len(chats) or not stop.is_set():
                    got.extend(play(server, chats, s.clients))
            except BaseException as error:
                failed.append(error)

        stop = threading.Event()
        thread = threading.Thread(target=load)
        thread.start()
        for i in range(s.kills):
            time.sleep(2 + i % 3)
            daemon.kill()
            time.sleep(i % 2)
            daemon = s.daemon(model.name, *options)
        stop.set()
        thread.join()
        s.expect(not failed, f"daemon killed {s.kills} times under load: no request fails {failed}")
        rounds = len(got) // len(chats)
        compare(s, f"answers of these {rounds} rounds", got, base * rounds)
        time.sleep(3)
        server.complete(chats[0][0] + [9] * 4000, 1)  # pushes prefixes out of vLLM's own cache
        server.complete([8] * 4000 + chats[0][0], 1)
        answer = server.complete(chats[1][0], 8)
        s.expect(answer.cached > 0, f"hits again, from the store: {answer.cached} tokens")
        for name, value in sorted(server.metrics().items()):
            if not name.endswith("_created"):
                print(f"       {name} {value:g}")
    finally:
        server.stop()
    return daemon


def times(s: Setting, server: Server) -> None:
    """The time to the first token of a long prompt: computed, vLLM's own hit, ours."""
    r = random.Random(11)
    n = s.length - 192
    found: dict[str, list[float]] = {"computed": [], "vLLM's own": [], "ours": []}
    others = [[r.randrange(10, 31000) for _ in range(n)] for _ in range(3)]
    for other in others:
        server.complete(other, 1)
    for _ in range(3):
        prompt = [r.randrange(10, 31000) for _ in range(n)]
        found["computed"].append(server.complete(prompt, 1).first)
        found["vLLM's own"].append(server.complete(prompt, 1).first)
        for other in others:  # their blocks push out those of the prompt
            server.complete(other, 1)
        answer = server.complete(prompt, 1)
        s.expect(answer.cached > n // 2, f"a prompt of {n} tokens hits: {answer.cached}")
        found["ours"].append(answer.first)
    for name, seconds in found.items():
        print(f"       first token of {n} tokens, {name}: {statistics.median(seconds):.3f} s")
