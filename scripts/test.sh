#!/usr/bin/env bash
# Run every test that needs no GPU; arguments go to pytest: bash scripts/test.sh tests/layers -x
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/venv.sh

use_venv test compile
# Arrays of tests are small, and ranks are many: threads of BLAS would only wait for each other.
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
python -m pytest -m "not gpu and not multi_gpu" "$@"
