"""Builds the daemon into the package where Go and the repository are at hand."""

import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent


class BuildWithDaemon(build_py):
    """Adds kvactor/bin/kvactord, if cmd/kvactord and a Go toolchain are there."""

    def run(self) -> None:
        """Builds the package, and the daemon into it."""
        super().run()
        go = shutil.which("go")
        if go is None or not (ROOT / "cmd" / "kvactord").is_dir():
            self.announce("no Go or no repository: kvactor will look for kvactord on PATH", level=3)
            return
        binary = Path(self.build_lib).resolve() / "kvactor" / "bin" / "kvactord"
        binary.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [go, "build", "-buildvcs=false", "-o", str(binary), "./cmd/kvactord"],
            cwd=ROOT,
            check=True,
        )


class PlatformDistribution(Distribution):
    """A wheel for this platform, since it may have a binary."""

    def has_ext_modules(self) -> bool:
        """The daemon counts as one."""
        return True


setup(cmdclass={"build_py": BuildWithDaemon}, distclass=PlatformDistribution)
