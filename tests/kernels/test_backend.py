"""What a backend promises of its arrays."""

import numpy as np
import pytest

from kernels.layout import view


def test_download_is_a_copy(backend):
    array = backend.zeros(6, np.float32)
    found = backend.download(view(array, (1, 2, 3, 1), "hcwn"))
    backend.upload(array, np.ones(6, np.float32))
    np.testing.assert_array_equal(found, np.zeros((1, 2, 3, 1)))


@pytest.mark.gpu
def test_download_waits_for_the_stream(cuda):
    """A map in the order H, C, W, N has to be rearranged first, which must not overtake what the stream still does."""
    shape = (64, 64, 64, 64)
    array = cuda.zeros(64**4, np.float32)
    with cuda.stream:
        for _ in range(200):
            array += 1
    found = cuda.download(view(array, shape, "hcwn"))
    assert found.shape == shape and (found == 200).all()
