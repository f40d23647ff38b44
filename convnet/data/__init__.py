"""From image files to batches of pixels: sources, decoding, augmentation, the threaded pipeline."""

from convnet.data import splits
from convnet.data.batch import Batch
from convnet.data.decode import decode
from convnet.data.errors import DataError, DecodeError
from convnet.data.pipeline import Pipeline
from convnet.data.sources import EncodedSource, FileSource, FolderSource, PixelSource, Source
from convnet.data.transform import Transform

__all__ = [
    "Batch", "DataError", "DecodeError", "EncodedSource", "FileSource", "FolderSource", "Pipeline", "PixelSource",
    "Source", "Transform", "decode", "splits",
]  # fmt: skip
