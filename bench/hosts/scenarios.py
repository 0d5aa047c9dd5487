"""What is shown on unmodified vLLM servers: answers, hits, failures of the daemon, times."""

from __future__ import annotations

import json
import random
import shutil
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from processes import Answer, Daemon, Server

# Blocks of 128 tokens, so few that vLLM's own cache evicts. The Gemma's six layers take blocks
# of their own, and those with a window hold a whole chunk of a prompt.
TINY_CACHE = {"llama": 90, "gemma": 450, "lfm2": 110}

# On the CPU vLLM's answers by these layers vary with the batch, and with where a prompt is divided
# into chunks, with the connector and without. So there is one client, and vLLM's prefix cache,
# which decides where prompts are divided, stays on. Without it the connector keeps nothing.
RECURRENT = "lfm2"

SHARED = 900
"""Tokens of a prompt that conversations share."""

# Conversations of a round while the daemon is killed; rounds are played until it was killed
# often enough.
KILL_CHATS = 50

# Conversations that two ranks play, each rank on one core.
RANK_CHATS = 50


@dataclass
class Setting:
    """Where things are, and how much is asked for.

    length: tokens of the longest prompt. rounds: of times and of speed. requests: of a round
    of speed. strict: proportions of times have to hold, too. logprob: by how much logprobs of
    answers with the same tokens may differ.
    """

    binary: Path
    folder: Path
    memory: str
    conversations: int
    turns: int
    length: int
    kills: int
    rounds: int
    requests: int
    strict: bool
    clients: int = 8
    logprob: float = 1e-4
    failures: list[str] = field(default_factory=list)

    def daemon(self, name: str, *options: str) -> Daemon:
        path = self.folder / f"{name}.sock"
        return Daemon(self.binary, path, self.folder / f"{name}.log", self.memory, *options)

    def server(
        self,
        model: Path,
        name: str,
        *options: str,
        daemon: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> Server:
        log = self.folder / f"{model.name}-{name}.log"
        return Server(
            model, log, *options, daemon=daemon, length=self.length, environment=environment
        )

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
    shared = [[r.randrange(10, 31000) for _ in range(SHARED)] for _ in range(2)]
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
        equal == total and difference <= s.logprob,
        f"{what}: {equal} of {total} answers token for token, logprobs within {difference:.1e}, "
        f"{cached} tokens of prompts not computed",
    )


def run(s: Setting, model: Path, parts: Sequence[str]) -> None:
    """The parts that are wanted of what is shown of one model."""
    if model.name == RECURRENT:
        s = replace(s, clients=1, logprob=0.1)
    chats = conversations(s)
    for part in parts:
        began = time.monotonic()
        print(f"-- {model.name}: {part}", flush=True)
        PARTS[part](s, model, chats)
        print(f"       {time.monotonic() - began:.0f} s", flush=True)


def alone(s: Setting, model: Path, chats: list[Conversation]) -> None:
    """The answers without the connector, vLLM's own cache so small that it evicts."""
    server = s.server(model, "alone", *tiny(model))
    try:
        server.complete(list(range(10, 2000)), 2)
        answers = play(server, chats, s.clients)
    finally:
        server.stop()
    saved = [[asdict(answer) for answer in chat] for chat in answers]
    _answers_file(s, model).write_text(json.dumps(saved))


def _answers_file(s: Setting, model: Path) -> Path:
    """Where the answers without the connector are kept for other parts."""
    return s.folder / f"{model.name}-{s.conversations}x{s.turns}-{s.length}.json"


def answers_alone(s: Setting, model: Path, chats: list[Conversation]) -> list[list[Answer]]:
    """The answers of part alone, which is run first where they are not there."""
    file = _answers_file(s, model)
    if not file.exists():
        alone(s, model, chats)
    return [[Answer(**answer) for answer in chat] for chat in json.loads(file.read_text())]


def store_options(s: Setting, model: Path, part: str) -> tuple[str, str]:
    """The options of a daemon with an empty store."""
    store = s.folder / f"{model.name}-{part}-store"
    shutil.rmtree(store, ignore_errors=True)
    return "--store", f"file://{store}"


def answers(s: Setting, model: Path, chats: list[Conversation]) -> None:
    """The same answers with the connector, by two vLLMs on one daemon, and its hits."""
    base = answers_alone(s, model, chats)
    daemon = s.daemon(model.name)
    try:
        first = s.server(model, "first", *tiny(model), daemon=daemon.path)
        try:
            compare(s, "connector, vLLM's cache small", play(first, chats, s.clients), base)
            compare(s, "connector, again", play(first, chats, s.clients), base)
        finally:
            first.kill()
        off = () if model.name == RECURRENT else ("--no-enable-prefix-caching",)
        second = s.server(model, "second", *off, daemon=daemon.path)
        try:
            answer = second.complete(chats[1][0], 8)
            want = SHARED // 128 * 128  # what follows may have been evicted
            s.expect(answer.cached >= want, f"another vLLM hits at once: {answer.cached} tokens")
            what = "another vLLM, its cache off" if off else "another vLLM"
            compare(s, what, play(second, chats, s.clients), base)
        finally:
            second.stop()
    finally:
        daemon.stop()


def kills(s: Setting, model: Path, chats: list[Conversation]) -> None:
    """vLLM killed, and the daemon killed under load several times."""
    base = answers_alone(s, model, chats)[:KILL_CHATS]
    chats = chats[:KILL_CHATS]
    options = store_options(s, model, "kills")
    daemon = s.daemon(model.name, *options)
    try:
        server = s.server(model, "killed", *tiny(model), daemon=daemon.path)
        try:
            play(server, chats[:2], s.clients)
        finally:
            server.kill()
        daemon = _killed(s, model, chats, base, daemon, options)
    finally:
        daemon.stop()


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


def ranks(s: Setting, model: Path, chats: list[Conversation]) -> None:
    """The same answers by two ranks, each with its part of the heads, with the connector."""
    chats = chats[:RANK_CHATS]
    options = (*tiny(model), "--tensor-parallel-size", "2")
    # vLLM gives a rank a NUMA node where it isn't told which cores to compute on.
    cores = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    server = s.server(model, "ranks-alone", *options, environment=cores)
    try:
        base = play(server, chats, s.clients)
    finally:
        server.stop()
    daemon = s.daemon(model.name)
    try:
        server = s.server(model, "ranks", *options, daemon=daemon.path, environment=cores)
        try:
            compare(s, "two ranks", play(server, chats, s.clients), base)
        finally:
            server.kill()
        server = s.server(model, "ranks-again", *options, daemon=daemon.path, environment=cores)
        try:
            answer = server.complete(chats[1][0], 8)
            s.expect(answer.cached > 0, f"two ranks restarted hit at once: {answer.cached} tokens")
            compare(s, "two ranks, again", play(server, chats, s.clients), base)
        finally:
            server.stop()
    finally:
        daemon.stop()


def times(s: Setting, model: Path, chats: list[Conversation]) -> None:
    """The time to the first token of a long prompt: computed, and in three places."""
    r = random.Random(11)
    n = s.length - 192
    ways = ("computed", "vLLM's own", "the daemon's memory", "its store")
    found: dict[str, list[float]] = {way: [] for way in ways}
    options = store_options(s, model, "times")
    daemon = s.daemon(model.name, *options)
    try:
        server = s.server(model, "times", daemon=daemon.path)
        try:
            server.complete([r.randrange(10, 31000) for _ in range(n)], 1)
            for _ in range(s.rounds):
                prompt = [r.randrange(10, 31000) for _ in range(n)]
                for way in ways:
                    if way == "the daemon's memory":
                        server.reset()
                    if way == "its store":
                        daemon.stop()
                        daemon = s.daemon(model.name, *options)
                        server.reset()
                        reconnect(server, r)
                    answer = server.complete(prompt, 1)
                    found[way].append(answer.first)
                    if way != "computed":
                        s.expect(answer.cached > n // 2, f"{answer.cached} tokens from {way}")
        finally:
            server.stop()
    finally:
        daemon.stop()
    for way, seconds in found.items():
        print(f"       first token of {n} tokens, {way}: {statistics.median(seconds):.3f} s")


def reconnect(server: Server, r: random.Random) -> None:
    """Returns when the connector has a session with a daemon that was started again.

    It sees the end of the last session with the next request, and looks once a second.
    """
    server.complete([r.randrange(10, 31000) for _ in range(200)], 1)
    time.sleep(2)


def speed(s: Setting, model: Path, chats: list[Conversation]) -> None:
    """Tokens a second with and without the connector, where nothing is reused.

    Three servers take turns with requests that they have not seen: two without the connector,
    one with it. The two differ by chance alone, which says how far the third may be trusted.
    The engine's part of a step is what the connector's calls and copies take of the time in
    which the server is busy.
    """
    r = random.Random(13)
    daemon = s.daemon(model.name)
    servers: dict[str, Server] = {}
    rates: dict[str, list[float]] = {"without": [], "also without": [], "with": []}
    busy = 0.0
    try:
        for name in rates:
            path = daemon.path if name == "with" else None
            servers[name] = s.server(model, name.replace(" ", "-"), daemon=path)
        for server in (*servers.values(), *servers.values()):
            _load(s, server, r)  # compiles, and touches memory for the first time
        before = servers["with"].metrics()
        for i in range(2 * s.rounds):
            first = i % len(servers)
            for name in (list(servers) * 2)[first : first + len(servers)]:
                tokens, seconds = _load(s, servers[name], r)
                rates[name].append(tokens / seconds)
                busy += seconds if name == "with" else 0
        after = servers["with"].metrics()
    finally:
        for server in servers.values():
            server.stop()
        daemon.stop()
    for name, values in rates.items():
        each = ", ".join(f"{value:.0f}" for value in values)
        print(f"       {name} the connector: tokens a second {each}")
    without = statistics.median(rates["without"])
    control = statistics.median(rates["also without"]) / without
    print(f"       the second server without the connector: {control:.3f} of the first")
    ratio = statistics.median(rates["with"]) / statistics.median(
        rates["without"] + rates["also without"]
    )
    _expect_time(s, ratio >= 0.97, f"{ratio:.3f} of the tokens a second, at least 0.97")
    part = {
        name: (after[f"kvactor_{name}_total"] - before[f"kvactor_{name}_total"]) / busy
        for name in ("wire_seconds", "save_seconds")
    }
    for name, share in part.items():
        print(f"       {name}: {100 * share:.2f} % of the time under load")
    share = part["wire_seconds"]
    _expect_time(s, share <= 0.01, f"the engine's part of a step: {100 * share:.2f} %, at most 1")


def _expect_time(s: Setting, holds: bool, what: str) -> None:
    if s.strict:
        s.expect(holds, what)
    else:
        print(f"       {what}", flush=True)


def _load(s: Setting, server: Server, r: random.Random) -> tuple[int, float]:
    """Requests of 1,000 tokens and 64 more; their tokens, and the seconds they took."""
    prompts = [[r.randrange(10, 31000) for _ in range(1000)] for _ in range(s.requests)]
    began = time.perf_counter()
    with ThreadPoolExecutor(s.clients) as pool:
        answers = list(pool.map(lambda prompt: server.complete(prompt, 64), prompts))
    return sum(1000 + len(a.tokens) for a in answers), time.perf_counter() - began


PARTS = {
    "alone": alone,
    "answers": answers,
    "times": times,
    "speed": speed,
    "kills": kills,
    "ranks": ranks,
}
