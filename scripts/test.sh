#!/usr/bin/env bash
# Run every test that needs no GPU; arguments go to pytest: bash scripts/test.sh tests/layers -x
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/venv.sh

use_venv test compile
python -m pytest -m "not gpu and not multi_gpu" "$@"
