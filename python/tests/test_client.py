import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import kvactor
from conftest import stop
from kvactor import NO_PAGE, Extend, Group, Item, Kind, Prompt, Range, Reserve, Retention
from kvactor.errors import KvactorError, RefusedError, UnreachableError

BLOCK = 16
FULL = Group("full", BLOCK, (512, 256))
WINDOW = Group("window", BLOCK, (128,), Kind.WINDOW, 40)


def open_session(daemon, fingerprint="weights", groups=(FULL,), **options):
    # On a machine with other work a daemon may take seconds to make its memory.
    return daemon.connect(deadline=30).open("test", fingerprint, groups, max_tokens=4096, **options)


def tokens(n, seed=0):
    return np.random.default_rng(seed).integers(0, 30000, n).astype(np.int32)


def store(session, prompt, fill=None, tail=False):
    """Writes the pages of a prompt and returns the write."""
    write = session.reserve(Reserve(prompt, tail))
    memory = session.memory()
    for pool, table in enumerate(write.pages):
        for group in session.attachment.groups_of(pool):
            for layer, at in enumerate(memory.pools(group)):
                if at == pool and fill is not None:
                    for block, page in enumerate(table):
                        if page != NO_PAGE:
                            memory.pages(group, layer)[page] = fill + block
    session.written(write.handle, len(prompt.tokens))
    session.release(write.handle)
    session.drain()
    return write


def test_what_one_session_writes_another_one_reads(daemon):
    one, two = open_session(daemon), open_session(daemon)
    ids = tokens(64)
    assert two.match(Prompt(ids)).reason == "cold"
    assert store(one, Prompt(ids), fill=10).tokens == 0
    found = two.match(Prompt(np.append(ids, 7)))
    assert (found.tokens, found.reason) == (64, "hit")
    for layer, size in enumerate(FULL.layer_bytes):
        pages = two.memory().pages(0, layer)[found.pages[0]]
        assert pages.shape == (4, size)
        np.testing.assert_array_equal(pages[:, 0], [10, 11, 12, 13])
    two.release(found.handle)


def test_the_last_token_is_never_matched(daemon):
    session = open_session(daemon)
    ids = tokens(64)
    store(session, Prompt(ids))
    assert session.match(Prompt(ids)).tokens == 48


def test_blocks_that_are_stored_have_nothing_to_write(daemon):
    session = open_session(daemon)
    ids = tokens(96)
    store(session, Prompt(ids[:64]))
    write = session.reserve(Reserve(Prompt(ids)))
    assert write.tokens == 64
    assert list(write.pages[0][:4]) == [NO_PAGE] * 4
    assert NO_PAGE not in write.pages[0][4:]
    session.release(write.handle)
    assert session.reserve(Reserve(Prompt(ids[:64]))).handle == 0


def test_what_was_not_written_is_not_found(daemon):
    session = open_session(daemon)
    ids = tokens(64)
    write = session.reserve(Reserve(Prompt(ids)))
    session.written(write.handle, 32)
    session.release(write.handle)
    assert session.match(Prompt(ids)).tokens == 32


def test_a_write_is_extended(daemon):
    session = open_session(daemon)
    ids = tokens(64)
    write = session.reserve(Reserve(Prompt(ids[:32])))
    session.written(write.handle, 32)
    added = session.extend(Extend(write.handle, ids[32:]))
    assert len(added[0]) == 2
    session.written(write.handle, 64)
    session.release(write.handle)
    assert session.lookup(Prompt(np.append(ids, 1))).tokens == 64


def test_windows_have_pages_for_what_the_next_token_attends_to(daemon):
    session = open_session(daemon, groups=(FULL, WINDOW))
    ids = tokens(160)
    store(session, Prompt(ids), fill=1)
    found = session.match(Prompt(np.append(ids, 1)))
    tables = {session.attachment.groups_of(i)[0]: table for i, table in enumerate(found.pages)}
    assert NO_PAGE not in tables[0]
    assert list(tables[1] != NO_PAGE) == [False] * 7 + [True] * 3


@pytest.mark.parametrize(
    "other", [{"salt": "s"}, {"adapter": "a"}, {"items": (Item(3, 9, "image"),)}]
)
def test_salt_adapter_and_items_keep_prompts_apart(daemon, other):
    session = open_session(daemon)
    ids = tokens(64)
    store(session, Prompt(ids))
    assert session.match(Prompt(ids, **other)).tokens == 0
    store(session, Prompt(ids, **other))
    assert session.match(Prompt(ids, **other)).tokens == 48


def test_fingerprints_keep_models_apart(daemon):
    one, two = open_session(daemon, "a"), open_session(daemon, "a")
    store(one, Prompt(tokens(64)))
    assert two.match(Prompt(tokens(64))).tokens == 48
    try:
        other = open_session(daemon, "b")
    except RefusedError:
        return
    assert other.match(Prompt(tokens(64))).tokens == 0


def test_ranks_have_parts_of_their_own(daemon):
    session = open_session(daemon, ranks=2)
    write = session.reserve(Reserve(Prompt(tokens(16))))
    page = write.pages[0][0]
    for rank in (0, 1):
        session.memory(rank).pages(0, 0)[page] = rank + 1
    assert session.memory(0).pages(0, 0)[page].tolist() == [1] * 512
    assert session.memory(1).pages(0, 0)[page].tolist() == [2] * 512


def test_retention_is_read_by_the_daemon(daemon):
    session = open_session(daemon)
    kept = Retention((Range(0, 16, 80, 60000), Range(16, None, 10)), 20)
    store(session, Prompt(tokens(64), retention=kept))
    assert session.match(Prompt(tokens(64))).tokens == 48
    wrong = Retention((Range(0, None, 101),))
    with pytest.raises(RefusedError, match="101"):
        session.reserve(Reserve(Prompt(tokens(32, 1), retention=wrong)))
    assert session.match(Prompt(tokens(64))).tokens == 48  # the session goes on


def test_pins_invalidation_and_reset(daemon):
    session = open_session(daemon)
    ids = np.append(tokens(64), 1)
    store(session, Prompt(ids[:64], salt="s"))
    pin, pinned = session.pin(Prompt(ids, salt="s"))
    assert pinned == 64
    session.unpin(pin)
    assert session.invalidate(salt="s") == 4
    assert session.match(Prompt(ids, salt="s")).tokens == 0
    store(session, Prompt(ids[:64]))
    session.reset()
    assert session.match(Prompt(ids)).tokens == 0


def test_statistics(daemon):
    session = open_session(daemon)
    store(session, Prompt(tokens(64)))
    assert session.stats()["Pools"][0]["Primary"]["Cached"] == 4


def test_an_entry_that_is_refused_leaves_the_others(daemon):
    session = open_session(daemon)
    good, bad = Reserve(Prompt(tokens(16))), Reserve(Prompt(tokens(5)))
    first, second, third = session.ask(reserves=[good, bad, good]).reserves
    assert isinstance(second, RefusedError)
    assert first.handle
    assert third.handle


@pytest.mark.parametrize(
    "bad",
    [Prompt([2**32] * 16), Prompt(tokens(16), salt=5), Prompt(np.ones(16))],
    ids=["tokens", "salt", "floats"],
)
def test_a_prompt_that_cannot_be_sent_keeps_what_is_queued(daemon, bad):
    session = open_session(daemon)
    ids = tokens(32)
    write = session.reserve(Reserve(Prompt(ids)))
    session.written(write.handle, 32)
    session.release(write.handle)
    with pytest.raises((ValueError, TypeError)):
        session.ask(matches=[Prompt(ids)], reserves=[Reserve(bad)])
    assert session.match(Prompt(ids)).tokens == 16
    assert session.stats()["Pools"][0]["Primary"]["Used"] == 1


def test_what_cannot_be_queued_is_not(daemon):
    session = open_session(daemon)
    write = session.reserve(Reserve(Prompt(tokens(16))))
    for handle, count in ((-1, 16), (write.handle, -16), (write.handle, "x")):
        with pytest.raises((ValueError, TypeError)):
            session.written(handle, count)
    with pytest.raises((ValueError, TypeError)):
        session.release(-1)
    session.drain()


def test_memory_is_mapped_by_another_process(daemon):
    session = open_session(daemon)
    write = session.reserve(Reserve(Prompt(tokens(16))))
    code = """
        import pickle, sys, kvactor
        attachment = pickle.load(sys.stdin.buffer)
        kvactor.attach(attachment).pages(0, 0)[int(sys.argv[1])] = 77
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(write.pages[0][0])],
        input=pickle.dumps(session.attachment),
        check=True,
    )
    assert session.memory().pages(0, 0)[write.pages[0][0]].tolist() == [77] * 512


def test_tensors_over_pages(daemon):
    torch = pytest.importorskip("torch")
    session = open_session(daemon)
    write = session.reserve(Reserve(Prompt(tokens(16))))
    tensor = session.memory().tensor(0, 0)
    tensor[write.pages[0][0]] = 5
    assert tensor.dtype == torch.uint8
    assert session.memory().pages(0, 0)[write.pages[0][0]].tolist() == [5] * 512


def test_no_daemon(tmp_path):
    with pytest.raises(UnreachableError):
        kvactor.connect(tmp_path / "none")


def test_a_daemon_that_dies_ends_the_session_and_leaves_the_memory(daemon):
    session = open_session(daemon)
    ids = tokens(64)
    store(session, Prompt(ids), fill=3)
    found = session.match(Prompt(ids))
    os.kill(_pid(session), signal.SIGKILL)
    with pytest.raises(UnreachableError):
        session.match(Prompt(ids))
    with pytest.raises(UnreachableError):
        session.match(Prompt(ids))
    assert session.memory().pages(0, 0)[found.pages[0][0]].tolist() == [3] * 512


def test_a_daemon_that_stands_still_costs_the_deadline(daemon):
    session = daemon.connect(deadline=0.3).open("test", "weights", [FULL], max_tokens=4096)
    pid = _pid(session)
    stop(pid)
    try:
        began = time.monotonic()
        with pytest.raises(KvactorError):
            session.match(Prompt(tokens(64)))
        assert time.monotonic() - began < 2
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_daemon_ends_with_the_process_that_spawned_it(binary):
    code = """
        import os, signal, kvactor
        daemon = kvactor.spawn("64MiB", options={"quiet": True})
        print(daemon.path, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            kvactor.connect(done.stdout.strip())
        except UnreachableError:
            return
        time.sleep(0.05)
    pytest.fail("the daemon is still there")


def _pid(session):
    return int(session.attachment.pools[0].path.split("/")[2])


def test_a_session_may_flush_without_reading(daemon):
    session = open_session(daemon)
    for _ in range(3000):
        session.release(999999)
        session.flush()
    session.reserve(Reserve(Prompt(tokens(16))))


def test_a_daemon_with_a_bad_flag_is_said_at_once(binary):
    began = time.monotonic()
    with pytest.raises(KvactorError, match="status"):
        kvactor.spawn("1MiB", options={"nonsense": "1"})
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("make", [list, np.array, lambda ids: np.array(ids, np.int32)])
def test_negative_tokens_are_refused(daemon, make):
    session = open_session(daemon)
    with pytest.raises((RefusedError, ValueError), match=r"2147483647|2\^31-1"):
        session.match(Prompt(make([1, -1] * 16)))
    assert session.match(Prompt(tokens(16))).reason == "cold"
