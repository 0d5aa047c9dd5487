import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import kvactor

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def binary(tmp_path_factory):
    """The daemon of this repository, built unless $KVACTORD names one."""
    if "KVACTORD" not in os.environ:
        if shutil.which("go") is None:
            pytest.skip("no Go to build the daemon with")
        path = tmp_path_factory.mktemp("bin") / "kvactord"
        command = ["go", "build", "-buildvcs=false", "-o", str(path), "./cmd/kvactord"]
        subprocess.run(command, cwd=ROOT, check=True)
        os.environ["KVACTORD"] = str(path)
    return os.environ["KVACTORD"]


@pytest.fixture
def daemon(binary):
    with kvactor.spawn("64MiB", options={"quiet": True}) as found:
        yield found


def stop(pid):
    """Stops a process, and returns when it stands still."""
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        time.sleep(0.001)
