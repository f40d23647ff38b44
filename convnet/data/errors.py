"""What can be wrong with data, told with the path of the folder or image."""

from convnet.errors import UserError


class DataError(UserError):
    """A dataset that cannot be used as it is."""


class DecodeError(DataError):
    """An image that cannot be read.

    path: of the image.  reason: what is wrong with it, without the path.
    """

    def __init__(self, path: str, reason: str):
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"cannot decode '{self.path}': {self.reason}"
