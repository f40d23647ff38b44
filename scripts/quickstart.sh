#!/usr/bin/env bash
# From a fresh clone to a trained network: handwritten digits, on the GPU if there is one, else on the CPU.
# Arguments are passed on to training: bash scripts/quickstart.sh train.epochs=5 solver.lr=0.02
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/venv.sh

use_venv quickstart
python scripts/digits.py data/digits

start=$SECONDS
convnet train configs/digits/lenet.yaml "$@" run.dir=runs/digits
seconds=$((SECONDS - start))
# A run never writes into the folder of another: the second is runs/digits-2.
run=$(python -c 'import pathlib, convnet.run; print(convnet.run.newest(pathlib.Path("runs/digits")).path)')

echo
convnet eval "$run"
top1=$(convnet eval "$run" --json | python -c 'import json, sys; print(json.load(sys.stdin)["top1_accuracy"])')

echo
convnet predict "$run" data/digits/val/{0,3,8}/*0.jpg
convnet show "$run"
python -c "print(f'top-1 {100 * $top1:.1f}% | trained in $seconds s | $run')"
