import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

import kvactor
from kvactor.types import Group, Prompt

GROUP = Group("full", 16, (512,))


@pytest.fixture
def session(daemon):
    found = daemon.connect().open("t", "f", [GROUP])
    yield found
    found.close()


def test_copies_run_while_the_session_does(session):
    attached = kvactor.Attached(session.attachment)
    with attached.copying():
        write = session.reserve(kvactor.Reserve(Prompt(range(16))))
        attached.memory.pages(0, 0)[write.pages[0]] = 7
    session.written(write.handle, 16)
    session.drain()
    found = session.match(Prompt(range(17)))
    assert found.tokens == 16
    assert (session.memory().pages(0, 0)[found.pages[0]] == 7).all()
    attached.close()
    with pytest.raises(kvactor.UnreachableError), attached.copying():
        raise AssertionError("a copy runs")
    assert session.match(Prompt(range(17))).tokens == 16


def test_no_copy_begins_when_the_session_has_ended(session):
    attached = kvactor.Attached(session.attachment)
    session.close()
    attached._thread.join(10)
    assert not attached._thread.is_alive()
    with pytest.raises(kvactor.UnreachableError), attached.copying():
        raise AssertionError("a copy runs")
    with pytest.raises(kvactor.RefusedError, match="has ended"):
        kvactor.Attached(session.attachment)


def test_a_copy_during_which_the_session_ends_has_failed(session):
    attached = kvactor.Attached(session.attachment)
    copying = attached.copying()
    copying.__enter__()
    session.close()
    attached._channel.wait_for_end()
    attached._thread.join(0.05)
    assert attached._thread.is_alive()  # the connection stays open
    with pytest.raises(kvactor.UnreachableError, match="during"):
        copying.__exit__(None, None, None)
    attached._thread.join(10)
    assert not attached._thread.is_alive()


def test_close_waits_for_copies(session):
    attached = kvactor.Attached(session.attachment)
    copying = attached.copying()
    copying.__enter__()
    closing = threading.Thread(target=attached.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    with pytest.raises(kvactor.UnreachableError, match="during"):
        copying.__exit__(None, None, None)
    closing.join(10)
    assert not closing.is_alive()


def test_a_daemon_that_is_gone(session):
    attached = kvactor.Attached(session.attachment)
    os.kill(int(session.attachment.pools[0].path.split("/")[2]), signal.SIGKILL)
    attached._thread.join(10)
    assert not attached._thread.is_alive()
    with pytest.raises(kvactor.UnreachableError):
        kvactor.Attached(session.attachment)


def copies_for_ever(attachment, ready):
    with kvactor.Attached(attachment).copying():
        ready.set()
        signal.pause()


def test_pages_stay_until_a_worker_is_killed(daemon, session):
    other = daemon.connect().open("other", "f", [GROUP])

    def used():
        return other.stats()["Pools"][0]["Primary"]["Used"]

    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    worker = context.Process(target=copies_for_ever, args=(session.attachment, ready))
    worker.start()
    assert ready.wait(30)
    session.reserve(kvactor.Reserve(Prompt(range(64))))
    session.close()
    for number in (0, signal.SIGSTOP, signal.SIGCONT):
        os.kill(worker.pid, number)
        time.sleep(0.05)
        assert used() == 4
    worker.kill()
    worker.join()
    until = time.monotonic() + 10
    while used():
        assert time.monotonic() < until
        time.sleep(0.01)
    other.close()


def test_the_key_is_no_text(session):
    assert session.attachment.key
    assert session.attachment.key.decode() not in repr(session.attachment)


def resident(path):
    """Bytes of this process that are mapped from a file and in memory."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            inside = len(words) > 5 and path in line
        elif inside and words[0] == "Rss:":
            found += int(words[1]) << 10
    return found


def test_memory_is_populated_before_it_is_copied_to(session):
    attached = kvactor.Attached(session.attachment)
    before = resident("memfd")
    if not attached.memory.populate():
        pytest.skip("the system does not populate")
    size = sum(pool.pages * pool.page_bytes for pool in session.attachment.pools)
    assert 0.9 * size <= resident("memfd") - before <= 1.1 * size
    files = sum(Path(pool.path).stat().st_blocks * 512 for pool in session.attachment.pools)
    assert files <= 1.1 * size  # what the daemon takes is what it was given
    attached.memory.pages(0, 0)[0] = 7
    attached.close()
    assert attached.memory.populate()  # of nothing
