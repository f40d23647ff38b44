#!/usr/bin/env bash
# Runs every CUDA kernel at the edge shapes of tests/kernels/cases.py under compute-sanitizer. Needs a GPU.
#
#   scripts/memcheck.sh                              out-of-bounds and misaligned accesses
#   scripts/memcheck.sh memcheck racecheck initcheck
#   scripts/memcheck.sh racecheck -k 'pool or norm'  options from the first with a dash on go to pytest
#
# Exits non-zero when a tool reports an error, a test fails, or there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=()
while [[ $# -gt 0 && $1 != -* ]]; do tools+=("$1"); shift; done
[[ ${#tools[@]} -gt 0 ]] || tools=(memcheck)

python=${PYTHON:-python3}
export CONVNET_SANITIZE=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
"$python" -c 'from kernels.backend import Cuda; Cuda()' || { echo "memcheck.sh: no usable GPU" >&2; exit 1; }

for tool in "${tools[@]}"; do
    echo "== $tool"
    # Calls that CuPy makes to find out what a device can do may fail by design: only the kernels' errors count.
    compute-sanitizer --tool "$tool" --error-exitcode 99 --report-api-errors no \
        "$python" -m pytest -q -p no:cacheprovider -m gpu tests/kernels/test_variants.py "$@"
done
