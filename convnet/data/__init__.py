"""From image files to batches of pixels: sources, decoding, augmentation, the threaded pipeline."""

from convnet.data.batch import Batch
from convnet.data.decode import decode
from convnet.data.errors import DataError, DecodeError
from convnet.data.pipeline import Pipeline
from convnet.data.source import FileSource, FolderSource, Source
from convnet.data.transform import Transform

__all__ = [
    "Batch", "DataError", "DecodeError", "FileSource", "FolderSource", "Pipeline", "Source", "Transform", "decode",
]  # fmt: skip
