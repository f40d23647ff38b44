"""Failures that are the user's to mend: shown as one line, without a traceback."""


class UserError(Exception):
    """Something outside the program is not as it must be; the message says what was expected and what was found."""


class NotFinite(UserError):
    """Training left the range of numbers."""
