"""Failures that are the user's to mend: shown as one line, without a traceback."""


class UserError(Exception):
    """Something outside the program is not as it must be; the message says what was expected and what was found."""


class NotFinite(UserError):
    """Training left the range of numbers."""


class Interrupted(Exception):
    """A signal asked the program to stop; `code` is the exit status, 128 + signal."""

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code
