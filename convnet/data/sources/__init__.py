"""Where samples come from; one file for each kind of source."""

from convnet.data.sources.base import UNLABELLED, EncodedSource, PixelSource, Place, Source
from convnet.data.sources.cifar import CifarSource
from convnet.data.sources.files import Files, FileSource
from convnet.data.sources.folder import FolderSource
from convnet.data.sources.listfile import ListSource
from convnet.data.sources.raw import RawSource
from convnet.data.sources.shards import ShardSource
from convnet.data.sources.synthetic import SyntheticSource

__all__ = [
    "UNLABELLED", "CifarSource", "EncodedSource", "FileSource", "Files", "FolderSource", "ListSource", "PixelSource",
    "Place", "RawSource", "ShardSource", "Source", "SyntheticSource",
]  # fmt: skip
