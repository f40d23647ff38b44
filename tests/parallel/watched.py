"""One rank that says whether what it does may take long."""

from contextlib import nullcontext

from convnet.parallel.control import Control
from convnet.parallel.watch import Pulse


class Watched(Control):
    """With a pulse, as of one rank of several. seen: what was noted, and whether it may take long."""

    def __init__(self):
        super().__init__()
        self.pulse, self.seen = Pulse(), []

    def busy(self, really=True):
        return self.pulse.occupied() if really else nullcontext()

    def waiting(self):
        return self.pulse.waiting()

    def note(self, what):
        self.seen.append((what, self.pulse.busy > 0))

    def noting(self, what, batches):
        """The batches; notes that each is read."""
        for batch in batches:
            self.note(what)
            yield batch
