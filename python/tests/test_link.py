import os
import signal
import time

import numpy as np
import pytest

import kvactor
from conftest import stop
from kvactor import link as link_module
from kvactor.link import Link
from kvactor.types import Group, Prompt

GROUP = Group("full", 16, (512,))


class Counts(dict):
    def add(self, name, value):
        self[name] = self.get(name, 0) + value


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(link_module, "RETRY_SECONDS", 0.05)


def make(path):
    return Link(os.fspath(path), name="t", fingerprint="f", groups=[GROUP], deadline=0.3)


def wait_for(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_daemon_that_comes_later_is_found(tmp_path):
    link = make(tmp_path / "socket")
    assert link.session is None
    with kvactor.spawn("64MiB", socket=tmp_path / "socket", options={"quiet": True}):
        wait_for(lambda: link.session is not None)
        assert link.session.generation == 1
    link.close()


def test_a_daemon_that_dies_is_found_again(tmp_path):
    path, counts = tmp_path / "socket", Counts()
    first = kvactor.spawn("64MiB", socket=path, options={"quiet": True})
    link = make(path)
    session = link.session
    os.kill(int(session.attachment.pools[0].path.split("/")[2]), signal.SIGKILL)
    answers = []
    with link.guard(session, counts):
        answers.append(session.match(Prompt(np.arange(32))))
    assert not answers
    assert link.session is None
    assert link.take_lost() == 1
    assert counts["wire_seconds"] > 0
    first.stop()
    with kvactor.spawn("64MiB", socket=path, options={"quiet": True}):
        wait_for(lambda: link.session is not None)
        assert link.session.generation == 2
        assert link.session.match(Prompt(np.arange(32))).tokens == 0
    link.close()


def test_a_daemon_that_stands_still_delays_no_one_but_the_first(daemon):
    link = make(daemon.path)
    session = link.session
    pid = int(session.attachment.pools[0].path.split("/")[2])
    stop(pid)
    try:
        with link.guard(session, Counts()):
            session.match(Prompt(np.arange(32)))
        began = time.monotonic()
        for _ in range(100):
            assert link.session is None
        assert time.monotonic() - began < 0.1
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: link.session is not None)
    link.close()


def test_a_refusal_leaves_the_session(daemon):
    link = make(daemon.path)
    session = link.session
    with link.guard(session, Counts()):
        session.unpin(12345)
    assert link.session is session
    link.close()
