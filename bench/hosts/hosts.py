"""Shows the connector on unmodified vLLM servers. bench/hosts/run is the command.

hosts.py --daemon bin/kvactord --folder DIR [--quick] [--model llama|gemma] [--part NAME]...
"""

import argparse
import signal
import sys
from pathlib import Path

import models
from processes import end_all
from scenarios import PARTS, Setting, run


def main() -> int:
    """Runs what was asked for; the status tells whether all of it held."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon", type=Path, required=True, help="a kvactord")
    parser.add_argument("--folder", type=Path, required=True, help="for models, logs and sockets")
    parser.add_argument("--model", choices=("llama", "gemma", "lfm2"), help="one of them only")
    parser.add_argument("--part", action="append", choices=PARTS, help="these parts only")
    parser.add_argument("--memory", default="1GiB", help="of the daemon")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter conversations")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end_all)
    options.folder.mkdir(parents=True, exist_ok=True)
    setting = Setting(
        binary=options.daemon.resolve(),
        folder=options.folder.resolve(),
        memory=options.memory,
        conversations=12 if options.quick else 200,
        turns=3 if options.quick else 4,
        length=4352 if options.quick else 8192,
        kills=3 if options.quick else 10,
        rounds=3 if options.quick else 6,
        requests=8 if options.quick else 24,
        strict=not options.quick,
    )
    for name, path in models.make(setting.folder / "models").items():
        if options.model in (None, name):
            run(setting, path, options.part or list(PARTS))
    print(f"{len(setting.failures)} of what was to be shown did not hold", flush=True)
    return 1 if setting.failures else 0


if __name__ == "__main__":
    sys.exit(main())
