"""The development kit of ILSVRC2012: which ids its classes have, and the labels of the validation images.

A label is the rank of the class's wnid among all, sorted: what published models use.  The kit's own ids, 1 to 1000,
are in another order and serve only to look up wnids.
"""

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from convnet.data.errors import DataError

META, TRUTH = "meta.mat", "ILSVRC2012_validation_ground_truth.txt"


@dataclass(frozen=True)
class Devkit:
    """wnids: sorted; the rank is the label.  words: their descriptions.  truth: label of each validation image in
    the order of file names."""

    wnids: tuple[str, ...]
    words: tuple[str, ...]
    truth: tuple[int, ...]


def read_devkit(path: Path) -> Devkit:
    """From ILSVRC2012_devkit_t12.tar.gz, or the folder of what is in it; raises DataError."""
    synsets = _synsets(path, _content(path, META))
    ids = {number: wnid for number, wnid, _ in synsets}
    words = {wnid: text for _, wnid, text in synsets}
    wnids = tuple(sorted(words))
    ranks = {wnid: rank for rank, wnid in enumerate(wnids)}
    labels = []
    for line, word in enumerate(_content(path, TRUTH).split(), 1):
        if not word.isdigit() or int(word) not in ids:
            raise DataError(f"'{path}': {TRUTH}:{line}: expected the id of a class, found {word.decode('latin1')!r}")
        labels.append(ranks[ids[int(word)]])
    return Devkit(wnids, tuple(words[wnid] for wnid in wnids), tuple(labels))


def _content(path: Path, name: str) -> bytes:
    """A file of the kit, wherever in it it lies."""
    try:
        if path.is_dir():
            found = sorted(path.rglob(name))
            if found:
                return found[0].read_bytes()
        else:
            with tarfile.open(path) as tar:
                for info in tar:
                    if info.name.rpartition("/")[2] == name and (file := tar.extractfile(info)):
                        return file.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(f"cannot read the development kit '{path}': {error}") from error
    raise DataError(f"'{path}' is not the development kit of ILSVRC2012: it holds no {name}")


def _synsets(path: Path, data: bytes) -> list[tuple[int, str, str]]:
    """Id, wnid and description of each class: of the synsets in meta.mat, those without children."""
    try:
        from scipy.io import loadmat
    except ImportError:
        raise DataError("reading meta.mat needs SciPy: pip install 'convnet[imagenet]'") from None
    try:
        rows = loadmat(io.BytesIO(data), squeeze_me=True, variable_names=["synsets"])["synsets"]
        leaves = [row for row in rows.reshape(-1) if int(row["num_children"]) == 0]
        found = [(int(row["ILSVRC2012_ID"]), str(row["WNID"]), str(row["words"])) for row in leaves]
    except Exception as error:  # damaged files raise many kinds
        raise DataError(f"'{path}': cannot read the synsets in {META}: {error!r}") from error
    if not found or len({wnid for _, wnid, _ in found}) != len(found):
        raise DataError(f"'{path}': {META}: expected synsets without children, each once, found {len(found)}")
    return found
