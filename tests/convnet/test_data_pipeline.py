"""The stream of batches: the same whatever the threads, complete, resumable anywhere, and never hanging."""

import importlib.util
import io
import logging
import threading
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from convnet.data import DataError, DecodeError, EncodedSource, FolderSource, Pipeline, PixelSource, Transform
from convnet.data import cache as cache_module
from convnet.data.advice import advice, remedies
from convnet.data.batch import share, spans
from convnet.data.cache import Cache
from convnet.data.policy import Policy
from convnet.data.workers import LONGEST
from convnet.parallel.shares import longest

TRAIN = Transform(3, 8, 8, pad=1, crop="random", mirror=True)
PLAIN = Transform(3, 8, 8)


class Drawn(EncodedSource):
    """Images of one colour each, which tells their index; counts how often each is read."""

    def __init__(self, count, side=8):
        super().__init__(np.arange(count, dtype=np.int32) % 10)
        self.side, self.reads, self.pause = side, [0] * count, 0.0

    def where(self, index):
        return f"/d/{index}.png"

    def read(self, index):
        self.reads[index] += 1
        time.sleep(self.pause)
        file = io.BytesIO()
        Image.new("RGB", (self.side, self.side), (index % 256, index // 256, 255)).save(file, "PNG")
        return file.getvalue()


def copied(batches):
    """(indices, labels, mirror, pixels, epoch, position) of each batch, which outlive the buffers."""
    return [(b.indices.copy(), b.labels.copy(), b.mirror.copy(), b.pixels.copy(), b.epoch, b.position) for b in batches]


def same(some, others):
    return len(some) == len(others) and all(
        all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
        for one, other in zip(some, others, strict=True)
    )


def seen(pipeline, epoch=0, start=0):
    return [int(i) for batch in pipeline.batches(epoch, start) for i in batch.indices]


def decoding():
    return [thread for thread in threading.enumerate() if thread.name.startswith("decode")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not decoding()


class TestOrder:
    def test_training_draws_each_sample_once_in_an_order_of_each_epoch(self):
        with Pipeline(Drawn(45), TRAIN, 8, train=True, seed=3) as pipeline:
            epochs = [seen(pipeline, epoch) for epoch in (0, 1, 0)]
        assert all(sorted(epoch) == list(range(45)) for epoch in epochs)
        assert epochs[0] == epochs[2] != epochs[1] and epochs[0] != list(range(45))

    def test_seed(self):
        with Pipeline(Drawn(45), TRAIN, 8, train=True, seed=3) as a, Pipeline(Drawn(45), TRAIN, 8, train=True) as b:
            assert seen(a) != seen(b)

    def test_evaluation_keeps_the_order_of_the_source(self):
        with Pipeline(Drawn(45), PLAIN, 8) as pipeline:
            assert seen(pipeline, 0) == seen(pipeline, 1) == list(range(45))

    def test_labels_and_pixels_belong_to_the_index(self):
        with Pipeline(Drawn(300), PLAIN, 32, train=True) as pipeline:
            for batch in pipeline.batches(5):
                assert batch.labels.tolist() == (batch.indices % 10).tolist() and batch.epoch == 5
                assert (
                    batch.pixels[..., 0] + 256 * batch.pixels[..., 1].astype(int) == batch.indices[:, None, None]
                ).all()
                assert (batch.pixels.dtype, batch.mirror.dtype, batch.labels.dtype, batch.indices.dtype) == (
                    np.uint8, np.uint8, np.int32, np.int64,
                )  # fmt: skip

    def test_augmentation_is_drawn_anew_in_each_epoch(self):
        with Pipeline(Drawn(64), TRAIN, 64) as pipeline:
            (first,), (second,) = copied(pipeline.batches(0)), copied(pipeline.batches(1))
        assert (first[0] == second[0]).all()
        assert 10 < (first[2] != second[2]).sum() < 54  # mirrored or not
        assert 40 < (first[3] != second[3]).any(axis=(1, 2, 3)).sum() < 64  # nine places of the crop


class TestSameStream:
    @pytest.fixture
    def straight(self):
        with Pipeline(Drawn(45, 9), TRAIN, 8, train=True, seed=3, threads=1, cache=0) as pipeline:
            return copied(pipeline.batches(2))

    @pytest.mark.parametrize(
        "options", [{"threads": 3}, {"prefetch": 0}, {"prefetch": 9}, {"cache": "auto"}, {"cache": 1}]
    )
    def test_whatever_the_machine(self, straight, options):
        with Pipeline(Drawn(45, 9), TRAIN, 8, train=True, seed=3, **options) as pipeline:
            assert same(copied(pipeline.batches(2)), straight)
            assert same(copied(pipeline.batches(2)), straight)  # now from the cache, where there is one

    @pytest.mark.parametrize("step", range(7))
    def test_resumed_at_any_step(self, straight, step):
        with Pipeline(Drawn(45, 9), TRAIN, 8, train=True, seed=3) as pipeline:
            assert same(copied(pipeline.batches(2, start=8 * step)), straight[step:])

    def test_resumed_with_another_batch_size(self, straight):
        order = np.concatenate([batch[0] for batch in straight]).tolist()
        with Pipeline(Drawn(45, 9), TRAIN, 5, train=True, seed=3) as pipeline:
            assert seen(pipeline, 2, start=24) == order[24:]
            rest = np.concatenate([batch.pixels.copy() for batch in pipeline.batches(2, start=24)])
        assert (rest == np.concatenate([batch[3] for batch in straight])[24:]).all()

    def test_ranks_together_have_what_one_has(self, straight):
        for world in (2, 3, 5):
            parts = []
            for rank in range(world):
                with Pipeline(Drawn(45, 9), TRAIN, 8, train=True, seed=3, rank=rank, world=world) as pipeline:
                    parts.append(copied(pipeline.batches(2)))
            for whole, *pieces in zip(straight, *parts, strict=True):
                for field in range(4):
                    assert np.array_equal(np.concatenate([piece[field] for piece in pieces]), whole[field])
                assert all(piece[4:] == whole[4:] for piece in pieces)


class TestLength:
    @pytest.mark.parametrize("drop_last, sizes", [(False, [8, 8, 4]), (True, [8, 8])])
    def test_last_batch(self, drop_last, sizes):
        with Pipeline(Drawn(20), PLAIN, 8, drop_last=drop_last) as pipeline:
            assert [len(batch) for batch in pipeline.batches()] == sizes
            assert len(pipeline) == len(pipeline) == len(sizes)
            assert [batch.position for batch in pipeline.batches(start=8)] == [8, 16][: len(sizes) - 1]

    def test_fewer_samples_than_a_batch(self):
        with pytest.raises(DataError, match="10 samples do not fill one batch of 16"):
            Pipeline(Drawn(10), PLAIN, 16, drop_last=True)
        with Pipeline(Drawn(10), PLAIN, 16) as pipeline:
            assert len(pipeline) == 1 and seen(pipeline) == list(range(10))

    def test_each_iteration_is_a_whole_epoch(self):
        with Pipeline(Drawn(45), PLAIN, 8) as pipeline:
            for stop in (1, 3):
                for step, _ in enumerate(pipeline.batches(), 1):
                    if step == stop:
                        break
                assert len(pipeline) == 6 and seen(pipeline) == list(range(45))

    def test_position_at_or_past_the_end(self):
        with Pipeline(Drawn(16), PLAIN, 8) as pipeline:
            assert seen(pipeline, start=16) == [] and seen(pipeline, start=12) == [12, 13, 14, 15]

    @given(
        st.integers(1, 200),
        st.integers(1, 17),
        st.integers(1, 8),
        st.booleans(),
        st.integers(0, 210),
        st.integers(1, 2),
    )
    def test_every_rank_takes_the_same_steps(self, count, batch_size, world, drop_last, start, unit):
        """And what belongs together, `unit` samples from the first of the batch on, stays together."""
        steps = list(spans(count, batch_size, drop_last, start))
        shares = [[share(*span, rank, world, unit) for span in steps] for rank in range(world)]
        assert len({len(part) for part in shares}) == 1
        for step, span in enumerate(steps):
            pieces = [part[step] for part in shares]
            assert [i for piece in pieces for i in range(*piece)] == list(range(*span))
            sizes = [end - first for first, end in pieces]
            most = longest(span[1] - span[0], world, unit)
            assert sizes[0] == most <= longest(batch_size, world, unit) < -(-batch_size // world) + unit
            assert all(begin == min(span[0] + rank * most, span[1]) for rank, (begin, _) in enumerate(pieces))
            assert all((first - span[0]) % unit == 0 or first == span[1] for first, _ in pieces)
        visited = [i for span in steps for i in range(*span)]
        assert visited == list(range(start, start + len(visited)))
        assert max(0, count - start) - len(visited) == (max(0, count - start) % batch_size if drop_last else 0)


class TestBrokenImages:
    @pytest.fixture
    def source(self, tmp_path):
        (tmp_path / "cat").mkdir()
        for name in "abc":
            Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / "cat" / f"{name}.jpg")
        (tmp_path / "cat" / "z.jpg").write_bytes(b"")
        return FolderSource(tmp_path)

    def test_error_names_the_file(self, source):
        with Pipeline(source, PLAIN, 2) as pipeline:
            batches = pipeline.batches()
            assert next(batches).indices.tolist() == [0, 1]
            with pytest.raises(DecodeError, match=r"cat/z.jpg': the file is empty"):
                next(batches)
            assert seen_until_error(pipeline) == [0, 1]  # and the pipeline still works

    def test_skip_leaves_the_sample_without_label_and_tells_once(self, source, caplog):
        with caplog.at_level(logging.WARNING), Pipeline(source, PLAIN, 4, on_error="skip") as pipeline:
            for _ in range(3):
                (batch,) = pipeline.batches()
                assert batch.labels.tolist() == [0, 0, 0, -1] and not batch.pixels[3].any() and batch.pixels[:3].all()
        assert [record.getMessage() for record in caplog.records] == [f"skipped: {pipeline.broken[3]}"]
        assert list(pipeline.broken) == [3] and pipeline.broken[3].path.endswith("cat/z.jpg")

    def test_skipped_file_is_read_once(self):
        class Bad(Drawn):
            def read(self, index):
                return super().read(index) and b""

        source = Bad(6)
        with Pipeline(source, PLAIN, 3, on_error="skip", prefetch=0) as pipeline:
            for epoch in range(3):
                seen(pipeline, epoch)
        assert source.reads == [1] * 6 and sorted(pipeline.broken) == list(range(6))

    def test_skip_moves_no_other_sample(self, source, tmp_path):
        def stream(start=0):
            with Pipeline(source, TRAIN, 2, train=True, seed=1, on_error="skip") as pipeline:
                return copied(pipeline.batches(0, start))

        broken, resumed = stream(), stream(2)
        assert same(broken[1:], resumed)
        Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / "cat" / "z.jpg")
        for one, other in zip(stream(), broken, strict=True):
            good = other[1] >= 0
            assert (one[0] == other[0]).all() and all((one[f][good] == other[f][good]).all() for f in (1, 2, 3))

    def test_of_several_errors_the_first_in_order_is_raised(self):
        class Bad(Drawn):
            def read(self, index):
                time.sleep(0.02 if index == 3 else 0)
                return b"" if index >= 3 else super().read(index)

        for _ in range(5):
            with Pipeline(Bad(16), PLAIN, 16, threads=4) as pipeline, pytest.raises(DecodeError, match=r"/d/3.png"):
                next(pipeline.batches())

    def test_defect_in_a_thread_is_raised_with_the_path(self):
        class Bad(Drawn):
            def read(self, index):
                return super().read(index) if index != 11 else 1 / 0

        with Pipeline(Bad(40), PLAIN, 4, on_error="skip") as pipeline:
            with pytest.raises(DataError, match=r"'/d/11.png': ZeroDivisionError: division by zero") as error:
                seen(pipeline)
            assert isinstance(error.value.__cause__, ZeroDivisionError)


def seen_until_error(pipeline):
    found = []
    with pytest.raises(DecodeError):
        for batch in pipeline.batches():
            found += batch.indices.tolist()
    return found


class TestEnding:
    @pytest.mark.parametrize("drawn", [0, 1])
    def test_consumer_that_stops_early(self, drawn):
        source = Drawn(4000)
        pipeline = Pipeline(source, PLAIN, 500, threads=1, prefetch=5)
        batches = pipeline.batches()
        if drawn:
            next(batches)
        source.pause = 0.03  # a piece of a batch now takes seconds
        begin = time.perf_counter()
        pipeline.close()
        assert time.perf_counter() - begin < 1 and not decoding()
        pipeline.close()  # a second time does nothing

    def test_error_while_much_is_under_way(self):
        class Bad(Drawn):
            def read(self, index):
                time.sleep(0.01)
                return super().read(index) if index else b"no image"

        begin = time.perf_counter()
        with pytest.raises(DecodeError), Pipeline(Bad(4000), PLAIN, 500, threads=3, prefetch=6) as pipeline:
            seen(pipeline)
        assert time.perf_counter() - begin < 1.5

    def test_no_more_is_read_than_prefetch_allows(self):
        source = Drawn(200)
        with Pipeline(source, PLAIN, 10, prefetch=2) as pipeline:
            batches = pipeline.batches()
            next(batches)
            time.sleep(0.2)
            assert sum(source.reads) == 30

    def test_newer_iteration_ends_the_older(self):
        with Pipeline(Drawn(45), PLAIN, 8) as pipeline:
            older = pipeline.batches()
            next(older)
            assert seen(pipeline) == list(range(45))
            with pytest.raises(RuntimeError, match="ended by a newer one"):
                next(older)

    def test_after_close(self):
        pipeline = Pipeline(Drawn(45), PLAIN, 8)
        batches = pipeline.batches()
        next(batches)
        pipeline.close()
        for ended in (batches, pipeline.batches()):
            with pytest.raises(RuntimeError, match="close"):
                next(ended)

    def test_closed_by_another_thread(self):
        """What the consumer waits for is neither delivered in part nor a riddle."""
        source = Drawn(400)
        pipeline = Pipeline(source, PLAIN, 100, threads=2)
        batches = pipeline.batches()
        next(batches)
        source.pause = 0.02  # a batch now takes a second
        timer = threading.Timer(0.2, pipeline.close)
        timer.start()
        with pytest.raises(RuntimeError, match=r"this iteration was ended by a newer one, or by close\(\)"):
            list(batches)
        timer.join()

    def test_what_close_has_cancelled_is_not_waited_for(self):
        """The consumer's own end may come after that of the pool, which does not say that tasks never begin."""
        source = Drawn(400)
        pipeline = Pipeline(source, PLAIN, 100, threads=1)
        batches = pipeline.batches()
        next(batches)
        pipeline._pool.shutdown(wait=True, cancel_futures=True)
        assert any(task.cancelled() for work in pipeline._queue for _, task in work.tasks)
        ending = threading.Thread(target=batches.close, daemon=True)
        ending.start()
        ending.join(10)
        assert not ending.is_alive()
        pipeline.close()


def test_a_long_wait_is_told(monkeypatch, caplog):
    monkeypatch.setattr("convnet.data.pipeline.STALLED", 0.05)
    source = Drawn(8)
    source.pause = 0.1
    with Pipeline(source, PLAIN, 8, threads=1) as pipeline:
        assert seen(pipeline) == list(range(8))
    assert caplog.messages and caplog.messages[0].startswith("no images for 0.05 s: does the storage answer")


class TestAhead:
    @pytest.mark.parametrize(
        "samples, batch, threads, ahead",
        [(1000, 8, 2, 7), (1000, 100, 2, 2), (40, 8, 16, 4), (8, 8, 16, 2), (1000, 1, 128, 63), (1000, 64, 128, 5)],
        ids=["32 images for each thread", "few threads", "an epoch", "two at least", "batches", "bytes"],
    )
    def test_of_images_that_are_decoded(self, samples, batch, threads, ahead):
        transform = Transform(3, 940, 940) if batch == 64 else PLAIN
        with Pipeline(Drawn(samples), transform, batch, threads=threads, drop_last=False) as pipeline:
            assert pipeline.prefetch == ahead

    def test_of_pixels(self):
        images = PixelSource(np.zeros((256, 9, 9, 3), np.uint8), np.zeros(256, np.int32), ["a"], "made")
        with Pipeline(images, PLAIN, 1, threads=8) as pipeline:
            assert pipeline.prefetch == 2


class TestPieces:
    """What a task does is worth the task, and no more than others can help with."""

    def sizes(self, source, transform, **options):
        with Pipeline(source, transform, 256, threads=2, **options) as pipeline:
            seen(pipeline)
            return {piece.stop - piece.start for piece in pipeline._pieces(256)}

    @pytest.mark.parametrize(
        "transform, size",
        [
            (TRAIN, 256),
            (Transform(3, 8, 8, crop="resized"), LONGEST),
            (Transform(3, 8, 8, policy=Policy("trivial")), LONGEST),
        ],
        ids=["copied", "resized", "policy"],
    )
    def test_of_images_at_hand(self, transform, size):
        images = PixelSource(np.zeros((256, 9, 9, 3), np.uint8), np.zeros(256, np.int32), ["a"], "made")
        assert self.sizes(images, transform) == {size}
        assert self.sizes(Drawn(256), transform, cache="auto") == {size}

    def test_of_images_that_are_decoded(self):
        assert self.sizes(Drawn(256), TRAIN, cache="off") == {LONGEST}


class TestBuffers:
    def test_a_batch_lives_until_the_next_but_one(self):
        with Pipeline(Drawn(120), PLAIN, 8, prefetch=1) as pipeline:
            before = None
            for batch in pipeline.batches():
                time.sleep(0.005)  # for the threads to fill all that they may
                if before is not None:
                    assert (before[0].pixels == before[1]).all()
                before = batch, batch.pixels.copy()

    def test_come_from_allocate_and_are_reused(self):
        made = []

        def allocate(shape, dtype):
            made.append(np.empty(shape, dtype))
            return made[-1]

        with Pipeline(Drawn(100), PLAIN, 8, prefetch=2, allocate=allocate) as pipeline:
            count = len(made)
            for batch in pipeline.batches():
                for array in (batch.pixels, batch.mirror, batch.labels, batch.indices):
                    assert any(np.shares_memory(array, whole) for whole in made)
            assert len(made) == count == 5 * 4  # five arrays of prefetch + 2 slots

    def test_fence_is_awaited_before_a_buffer_is_rewritten(self):
        passed = []
        with Pipeline(Drawn(64), PLAIN, 8, prefetch=1) as pipeline:
            for step, batch in enumerate(pipeline.batches()):
                copy = batch.pixels.copy()

                def fence(step=step, batch=batch, copy=copy):
                    passed.append(step)
                    assert (batch.pixels == copy).all()

                batch.fence = fence
                assert passed == list(
                    range(max(0, min(step, 6) - 1))
                )  # of those before the last; 8 batches: no ninth is begun
        assert sorted(passed) == list(range(8))  # the last ones by close(), before the memory may go

    def test_waiting_is_measured(self):
        source = Drawn(16)
        source.pause = 0.02
        with Pipeline(source, PLAIN, 4, threads=1, prefetch=0) as pipeline:
            seen(pipeline)
            assert 16 * 0.02 <= pipeline.waited < 3
        with Pipeline(Drawn(16), PLAIN, 4, threads=1, prefetch=2) as pipeline:
            for _ in pipeline.batches():
                time.sleep(0.1)
            assert pipeline.waited < 0.2


class TestCache:
    def reads(self, count=100, epochs=2, **options):
        source = Drawn(count, 16)  # 768 bytes each
        with Pipeline(source, PLAIN, 8, train=True, **options) as pipeline:
            for epoch in range(epochs):
                seen(pipeline, epoch)
        return np.array(source.reads)

    def test_small_set_is_decoded_once(self):
        assert (self.reads() == 1).all()
        assert (self.reads(cache="off") == 2).all()

    def test_keeps_what_fits(self, monkeypatch):
        monkeypatch.setattr(cache_module, "MIB", 768)
        reads = self.reads(cache=40)
        assert (reads == 1).sum() == 40 and (reads == 2).sum() == 60

    @pytest.mark.parametrize("fits, reads", [(100, 1), (99, 2)])
    def test_auto_keeps_all_or_nothing(self, monkeypatch, fits, reads):
        monkeypatch.setattr(cache_module, "MIB", 768)
        monkeypatch.setattr(cache_module, "AUTO_MIB", fits)
        assert (self.reads(prefetch=0, threads=1) == reads).all()

    def test_auto_does_not_judge_by_one_giant(self):
        cache = Cache("auto", 1000)
        cache.put(0, np.zeros((2000, 2000, 3), np.uint8))  # 12 MB: a thousand of these would be too many
        for index in range(1, 1000):
            cache.put(index, np.zeros((10, 10, 3), np.uint8))
        assert len(cache.images) == 1000

    def test_same_image_from_two_threads_counts_once(self):
        cache = Cache(1, 10)
        for _ in range(3):
            cache.put(4, np.zeros((400, 1000, 1), np.uint8))
        cache.put(5, np.zeros((400, 1000, 1), np.uint8))
        assert sorted(cache.images) == [4, 5] and cache.used == 800_000

    def test_images_of_one_size_are_stacked_and_the_stream_stays_the_same(self):
        for transform in (TRAIN, Transform(3, 6, 6, crop="random"), Transform(3, 6, 6, crop="resized")):
            with Pipeline(Drawn(45, 9), transform, 8, train=True, seed=3) as pipeline:
                first = copied(pipeline.batches(2))
                assert pipeline.cache.stacked.shape == (45, 9, 9, 3)
                assert same(copied(pipeline.batches(2)), first)

    def test_stacking_takes_no_memory(self):
        image, cache = np.ones((200, 500, 1), np.uint8), Cache(100, 50)
        tracemalloc.start()
        for index in range(50):
            cache.put(index, image * index)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert cache.used == 50 * image.size and peak < 1.1 * cache.used
        assert (cache.stacked[:, 0, 0, 0] == range(50)).all() and cache.get(7).base is cache.stacked

    def test_one_image_of_another_size_at_the_end(self):
        cache = Cache(1, 10)
        for index in range(10):
            cache.put(index, np.full((4, 4 + (index == 9), 3), index, np.uint8))
        assert cache.stacked is None
        assert all((cache.get(index) == index).all() for index in range(10))

    def test_images_of_several_sizes_are_kept_one_by_one(self):
        class Mixed(Drawn):
            def read(self, index):
                self.side = 8 + index % 3
                return super().read(index)

        with Pipeline(Mixed(20), PLAIN, 8, threads=1) as pipeline:
            first = copied(pipeline.batches())
            assert pipeline.cache.stacked is None and len(pipeline.cache.images) == 20
            assert same(copied(pipeline.batches()), first)

    def test_what_is_cached_is_resized_but_not_cropped(self):
        transform = Transform(3, 8, 8, resize=12, crop="random")
        with Pipeline(Drawn(10, 50), transform, 5, train=True) as pipeline:
            seen(pipeline)
            assert {image.shape for image in pipeline.cache.images.values()} == {(12, 12, 3)}


class TestViews:
    def test_ten_of_each_batch(self, tmp_path):
        (tmp_path / "a").mkdir()
        images = np.random.default_rng(0).integers(0, 256, (5, 10, 12, 3), np.uint8)
        for n, image in enumerate(images):
            Image.fromarray(image).save(tmp_path / "a" / f"{n}.png")
        with Pipeline(FolderSource(tmp_path), PLAIN, 3, views=10) as pipeline:
            batches = list(pipeline.batches(start=3))
        assert [batch.view for batch in batches] == list(range(10))
        assert all(batch.indices.tolist() == [3, 4] and batch.labels.tolist() == [0, 0] for batch in batches)
        assert all((batch.mirror == batch.view % 2).all() for batch in batches)
        starts = [(0, 0), (0, 4), (2, 0), (2, 4), (1, 2)]
        for batch in batches:
            y, x = starts[batch.view // 2]
            assert (batch.pixels == images[3:, y : y + 8, x : x + 8]).all()

    def test_nine_of_each_batch(self):
        images = np.random.default_rng(0).integers(0, 256, (5, 10, 12, 3), np.uint8)
        with Pipeline(PixelSource(images, np.zeros(5, np.int32), ["a"], "x"), PLAIN, 3, views=9) as pipeline:
            batches = list(pipeline.batches(start=3))
        assert [batch.view for batch in batches] == list(range(9))
        assert not any(batch.mirror.any() or batch.corner.any() for batch in batches)
        for batch, (y, x) in zip(batches, [(y, x) for y in (0, 1, 2) for x in (0, 2, 4)], strict=True):
            assert (batch.pixels == images[3:, y : y + 8, x : x + 8]).all()

    def test_every_batch_and_the_skipped(self):
        class Bad(Drawn):
            def read(self, index):
                return super().read(index) if index != 5 else b""

        with Pipeline(Bad(20), PLAIN, 8, views=10, on_error="skip") as pipeline:
            batches = copied(pipeline.batches())
        assert [batch[5] for batch in batches] == [0] * 10 + [8] * 10 + [16] * 10
        assert all(batch[1][5] == -1 and not batch[3][5].any() for batch in batches[:10])


def test_pillow_warnings_do_not_end_a_run(tmp_path):
    """Here every warning is an error; damaged EXIF data, which Pillow warns about, is no reason to lose an image."""
    (tmp_path / "a").mkdir()
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (9, 9, 9)).save(file, "JPEG")
    data = file.getvalue()
    exif = b"\xff\xe1\x00\x30Exif\0\0MM\0*\0\0\0\x08\xff\xff" + bytes([1]) * 30
    (tmp_path / "a" / "1.jpg").write_bytes(data[:2] + exif + data[data.index(b"\xff\xdb") :])
    with Pipeline(FolderSource(tmp_path), PLAIN, 1) as pipeline:
        assert seen(pipeline) == [0]


class TestThreads:
    def test_automatic_ones_come_as_the_consumer_waits(self, monkeypatch):
        monkeypatch.setattr("convnet.data.pipeline.available_cpus", lambda: 8)
        source = Drawn(400)
        with Pipeline(source, PLAIN, 10) as pipeline:
            assert (pipeline.threads, pipeline.active) == (8, 2)
            for _ in pipeline.batches():  # which takes no time between two batches
                pass
            assert pipeline.active == 8

    def test_no_more_than_are_needed(self, monkeypatch):
        monkeypatch.setattr("convnet.data.pipeline.available_cpus", lambda: 8)
        with Pipeline(Drawn(60), PLAIN, 10, prefetch=2) as pipeline:
            for _ in pipeline.batches():
                time.sleep(0.1)
            assert pipeline.active <= 3  # the first batch is always waited for

    def test_a_given_number_is_at_work_at_once(self):
        running, most = [], []

        class Slow(Drawn):
            def read(self, index):
                running.append(index)
                most.append(len(running))
                time.sleep(0.01)
                running.remove(index)
                return super().read(index)

        with Pipeline(Slow(60), PLAIN, 30, threads=3) as pipeline:
            assert pipeline.active == 3 and seen(pipeline) == list(range(60))
        assert max(most) == 3


class TestAdvice:
    def remedies(self, monkeypatch, installed, **options):
        monkeypatch.setattr("convnet.data.advice.available_cpus", lambda: 16)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed)
        with Pipeline(Drawn(8), PLAIN, 8, **options) as pipeline:
            return advice(pipeline, 0.123)

    def test_names_what_is_not_yet_done(self, monkeypatch):
        told = self.remedies(monkeypatch, None, threads=4)
        assert told.startswith("training waits for images for 12% of the time: data.threads: auto would use up to 16")
        assert all(
            word in told for word in ("pip install 'convnet[simplejpeg]'", "data.workers: processes", "convnet prepare")
        )
        assert "simplejpeg" not in self.remedies(monkeypatch, "there", threads=4)
        assert "threads: auto" not in self.remedies(monkeypatch, None, threads=16)

    def test_of_images_that_need_no_decoding(self, monkeypatch):
        monkeypatch.setattr("convnet.data.advice.available_cpus", lambda: 2)
        images = PixelSource(np.zeros((8, 8, 8, 3), np.uint8), np.zeros(8, np.int32), "a", "made")
        with Pipeline(images, PLAIN, 8, threads=2) as pipeline:
            assert remedies(pipeline) == ["`convnet bench data` shows which stage is slow"]


def test_bad_policy():
    with pytest.raises(ValueError, match="error, skip, defer, not 'ignore'"):
        Pipeline(Drawn(4), PLAIN, 2, on_error="ignore")
