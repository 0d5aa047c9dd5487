#!/usr/bin/env bash
# Builds the library and runs the host with PyTorch over it, with tensors in ordinary and in
# expandable segments. It needs gcc, an NVIDIA device, and a python3 with torch and numpy. For a
# machine without Go, build the library elsewhere:
#
#   go build -tags torch -buildmode=c-shared -o libkvactor.so ./gpu/cuda/torchtest
#   LIBRARY=libkvactor.so gpu/cuda/torchtest/run.sh
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
library=$(realpath "${LIBRARY:-$out/libkvactor.so}")
if [ -z "${LIBRARY:-}" ]; then
  CGO_ENABLED=1 go build -tags torch -buildmode=c-shared -o "$library" ./gpu/cuda/torchtest
fi
host=(python3 -B gpu/cuda/torchtest/host.py "$library" "${REQUESTS:-1000}" "${SEED:-1}")
"${host[@]}"
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "${host[@]}"
