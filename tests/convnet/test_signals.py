"""What a signal does to a run that is under way, or is stopping already."""

import os
import signal

import pytest

from convnet.signals import stop_request


def test_the_first_signal_is_a_request_also_where_a_fault_has_made_one():
    said = []
    with stop_request(said.append) as request:
        assert not request.status
        request.failed = True
        assert request.status == 1
        os.kill(os.getpid(), signal.SIGINT)
        assert request.status == request.code == 128 + signal.SIGINT
        assert said == ["SIGINT: finishing the step, then saving; Ctrl-C aborts at once"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
