"""What trained networks came to, as one JSON: `python scripts/record_runs.py OUT.json RUN [RUN ...]`.

Of each run: config, seed, device, the test error after its last epoch, seconds, and the curve of the evaluations.
"""

import argparse
import json
import statistics
import sys
from datetime import date
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"


def record(run: Path) -> dict[str, Any]:
    """One run, from its log of metrics."""
    rows = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    first = next(row for row in rows if row["event"] == "run")
    evaluations = [row for row in rows if row["event"] == "eval"]
    ends = [row for row in rows if row["event"] == "end"]
    kept = ("name", "seed", "device", "version", "config", "precision", "batch_size", "epochs", "parameters")
    return {
        **{key: first[key] for key in kept},
        "test_error": round(1 - evaluations[-1]["top1_accuracy"], 6),
        "seconds": round(ends[-1]["seconds"], 1) if ends else None,
        "curve": [
            {"epoch": row["epoch"], "loss": round(row["loss"], 5), "test_error": round(1 - row["top1_accuracy"], 6)}
            for row in evaluations
        ],
    }


def means(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean test error of each network over its seeds, and the standard deviation where there are several."""
    errors: dict[str, list[float]] = {}
    for run in runs:
        errors.setdefault(run["name"], []).append(run["test_error"])
    return {
        name: {"seeds": len(found), "mean": statistics.mean(found)}
        | ({"stdev": statistics.stdev(found)} if len(found) > 1 else {})
        for name, found in errors.items()
    }


def main() -> None:
    """Read the runs, write the record, print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--what", default="test errors of trained networks", help="what this records, in words")
    args = parser.parse_args()
    runs = [record(run) for run in args.runs]
    command = " ".join(["python", *sys.argv])
    header = {"what": args.what, "date": date.today().isoformat(), "command": command}
    result = {**header, "means": means(runs), "runs": runs}
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["means"], indent=1))


if __name__ == "__main__":
    main()
