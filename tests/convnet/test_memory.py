"""The memory planner: no two live blocks overlap, and the arena is exactly as large as it must be for them."""

from hypothesis import given
from hypothesis import strategies as st

from convnet.graph.memory import ALIGNMENT, Block, place

blocks = st.lists(
    st.builds(
        lambda size, first, length: Block(size, first, first + length),
        st.integers(0, 5000),
        st.integers(0, 30),
        st.integers(0, 12),
    ),
    max_size=40,
)


@given(blocks)
def test_live_blocks_never_overlap(blocks):
    offsets, peak = place(blocks)
    for i, a in enumerate(blocks):
        for j in range(i):
            b = blocks[j]
            if a.first <= b.last and b.first <= a.last:
                assert offsets[i] + a.size <= offsets[j] or offsets[j] + b.size <= offsets[i]
    assert peak == max((o + b.size for o, b in zip(offsets, blocks, strict=True)), default=0)


@given(blocks)
def test_offsets_are_aligned_and_the_peak_is_bounded(blocks):
    offsets, peak = place(blocks)
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    padded = [-(-b.size // ALIGNMENT) * ALIGNMENT for b in blocks]
    at_once = [sum(b.size for b in blocks if b.first <= step <= b.last) for step in range(50)]
    assert max(at_once) <= peak <= sum(padded)


def test_blocks_that_never_meet_share_memory():
    offsets, peak = place([Block(1000, 0, 1), Block(1000, 2, 3), Block(1000, 4, 5)])
    assert offsets == [0, 0, 0]
    assert peak == 1000


def test_a_small_block_fills_the_gap_below_a_large_one():
    offsets, peak = place([Block(4096, 0, 1), Block(2048, 1, 3), Block(4096, 2, 3), Block(512, 3, 3)])
    assert offsets[0] == 0 and offsets[2] == 0  # the two large ones never meet
    assert offsets[1] == 4096
    assert peak == 4096 + 2048 + 512
