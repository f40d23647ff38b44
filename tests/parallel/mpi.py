"""A rank that MPI starts: `mpirun -n 3 python -m tests.parallel.mpi FOLDER` leaves rank-0.npz and so on there."""

import sys
from pathlib import Path

import numpy as np

from convnet.parallel import communicator
from convnet.parallel.communicator import Mpi
from tests.parallel.curves import advance, engine, state


def collectives(ranks: Mpi) -> dict[str, np.ndarray]:
    """Of float32 what each kind of transfer leaves at this rank."""
    count, rank, size = 12, ranks.rank, ranks.size
    own = np.random.default_rng(rank).standard_normal(count).astype(np.float32)
    targets = {
        "all_reduce": np.zeros(count, np.float32),
        "reduce_scatter": np.zeros(count // size, np.float32),
        "all_gather": np.zeros(size * count, np.float32),
        "broadcast": np.zeros(count, np.float32),
        "reduce": np.zeros(count, np.float32),
    }
    for kind, target in targets.items():
        start, wait = ranks.bind(kind, own, target, root=1)
        start(), wait()
    ring = np.zeros(count, np.float32)
    for peer in range(size):  # one after the other: a send may last until it is received
        if peer == rank:
            ranks.send(own, (rank + 1) % size)
        elif peer == (rank - 1) % size:
            ranks.receive(ring, peer)
    return {**targets, "ring": ring}


def main(folder: str) -> None:
    communicator.CHUNK = 5
    ranks = Mpi()
    found = collectives(ranks)
    made = advance(engine(ranks, options="sharded ema"), 0, 8)
    found |= {f"{kind} {name}": array for kind, arrays in state(made).items() for name, array in arrays.items()}
    np.savez(Path(folder) / f"rank-{ranks.rank}.npz", history=made.history(0, 8), **found)


if __name__ == "__main__":
    main(sys.argv[1])
