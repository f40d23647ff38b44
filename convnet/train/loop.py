"""The training loop.

start of every extension
while not stop:
    batch -> forward, backward, update
    every extension that is due: writers, editors, readers
rescue of every extension, where one of these failed
finish of every extension
"""

from collections.abc import Iterable
from contextlib import ExitStack

from convnet.errors import NotFinite, NotSaved
from convnet.train.extension import Extension
from convnet.train.trainer import Trainer


def run(trainer: Trainer, extensions: Iterable[Extension]) -> None:
    """Train until all epochs are done or a signal asks to stop; extensions of one priority keep their order."""
    ordered = sorted(extensions, key=lambda extension: -extension.priority)
    trainer.heed()
    with ExitStack() as stack:
        for extension in ordered:
            stack.callback(extension.finish, trainer)
            extension.start(trainer)
        try:
            while not trainer.stop:
                trainer.update()
                for extension in ordered:
                    if extension.due(trainer):
                        extension(trainer)
        except (NotFinite, NotSaved):  # nothing that could be saved
            raise
        except Exception:
            for extension in ordered if trainer.control.size == 1 else ():  # others cannot be asked for what they have
                extension.rescue(trainer)
            raise
