"""What augmentation draws: by definition, of the right distribution, and the same whatever the batches and ranks."""

import itertools

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from convnet.data import FolderSource, Pipeline, PixelSource, Transform
from convnet.data.augment import Augment, Erasing, settle
from convnet.data.batch import share
from convnet.data.draws import beta, normal, uniform
from convnet.data.jitter import LUMA, Jitter
from convnet.data.policy import OPERATIONS, POLICIES, Policy
from convnet.parallel.shares import longest
from kernels.image import AUGMENT
from kernels.image import Augment as Geometry

SHAPE = (3, 20, 30)
PCA = ((1.0, 2.0, 3.0), (0.0, 5.0, 1.0), (2.0, 0.0, 7.0))
EVERYTHING = Augment(SHAPE, Jitter(0.4, 0.4, 0.4, 0.1), 0.1, True, PCA, Erasing(0.5), mixup=0.4, cutmix=1.0)


def words(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, shape, np.uint32)


class TestDraws:
    def test_each_sample_has_its_own_whatever_the_batch(self):
        whole = EVERYTHING.draw(7, 3, np.arange(40))
        assert whole.keys() == set(EVERYTHING.names)
        for first, size in ((0, 1), (6, 7), (10, 30)):
            part = EVERYTHING.draw(7, 3, np.arange(first, first + size))
            for name in part:
                count = size - size % 2 if name == "partner" else size  # the last of an odd number has no partner
                np.testing.assert_array_equal(part[name][:count], whole[name][first : first + count])

    @pytest.mark.parametrize("seed, epoch", [(8, 3), (7, 4)])
    def test_others_for_another_seed_and_epoch(self, seed, epoch):
        ours, theirs = EVERYTHING.draw(7, 3, np.arange(20)), EVERYTHING.draw(seed, epoch, np.arange(20))
        for name in set(ours) - {"partner", "second"}:
            assert (ours[name] != theirs[name]).any(), name

    @pytest.mark.parametrize("batch", [5, 8, 9])
    @pytest.mark.parametrize("world", [1, 2, 3, 4])
    def test_ranks_draw_what_one_would(self, batch, world):
        """Pairs are not torn apart."""
        whole, parts = EVERYTHING.draw(1, 0, np.arange(batch)), []
        for rank in range(world):
            first, end = share(0, batch, rank, world, EVERYTHING.unit)
            assert end - first <= longest(batch, world, EVERYTHING.unit)
            parts.append(EVERYTHING.draw(1, 0, np.arange(first, end)))
        for name in whole:
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), whole[name])

    def test_only_what_is_wanted_is_brought(self):
        assert Augment(SHAPE).names == () and Augment(SHAPE).draw(0, 0, np.arange(3)) == {}
        assert Augment(SHAPE, Jitter(brightness=0.1)).names == ("colour",)
        assert Augment(SHAPE, Jitter(contrast=0.1)).names == ("colour", "pull")
        assert Augment(SHAPE, noise=0.1, pca=PCA).names == ("colour",)
        assert Augment(SHAPE, cutmix=1).names == ("partner", "patch", "blend", "second", "share")


class TestPipeline:
    source = PixelSource(
        np.random.default_rng(0).integers(0, 256, (23, 20, 30, 3), np.uint8),
        np.arange(23, dtype=np.int32),
        "x" * 23,
        "x",
    )

    def inputs(self, batch, start=0, **options):
        """What the engine would be fed, batch by batch."""
        with Pipeline(
            self.source, Transform(3, 20, 30, mirror=True), batch, seed=9, train=True, augment=EVERYTHING, **options
        ) as pipeline:
            return [
                {name: array.copy() for name, array in given.inputs.items()} for given in pipeline.batches(2, start)
            ]

    @pytest.mark.parametrize("batch", [1, 4, 5])
    def test_ranks_together_have_what_one_has(self, batch):
        whole = self.inputs(batch, threads=1)
        parts = [self.inputs(batch, rank=rank, world=3, threads=2) for rank in range(3)]
        assert len(whole) == -(-23 // batch)
        for step, expected in enumerate(whole):
            for name, array in expected.items():
                np.testing.assert_array_equal(np.concatenate([part[step][name] for part in parts]), array, err_msg=name)

    def test_from_the_middle_of_an_epoch(self):
        for ours, theirs in zip(self.inputs(5, start=10), self.inputs(5)[2:], strict=True):
            for name, array in ours.items():
                np.testing.assert_array_equal(array, theirs[name], err_msg=name)

    def test_partners_are_neighbours(self):
        for given in self.inputs(5):
            labels, count = given["labels"], len(given["labels"])
            pairs = count - count % 2
            assert given["second"][:pairs].tolist() == [labels[i ^ 1] for i in range(pairs)]
            assert (given["second"][pairs:] == -1).all()

    def test_broken_images_are_mixed_with_none(self, tmp_path):
        (tmp_path / "a").mkdir()
        for n in range(6):
            Image.new("RGB", (30, 20), (9, 9, 9)).save(tmp_path / "a" / f"{n}.png")
        (tmp_path / "a/3.png").write_bytes(b"broken")
        options = {"train": True, "augment": EVERYTHING, "on_error": "skip"}
        with Pipeline(FolderSource(tmp_path), Transform(3, 20, 30), 6, **options) as pipeline:
            (batch,) = pipeline.batches()
            (place,) = np.flatnonzero(batch.indices == 3)
            torn = [place, place ^ 1]
            assert batch.labels[place] == -1 and (batch.extras["second"][torn] == -1).all()
            assert (batch.extras["share"][torn] == 1).all() and not batch.extras["patch"][torn].any()
            assert (np.delete(batch.extras["second"], torn) == 0).all()


def test_uniform_and_normal_numbers():
    numbers = normal(words(20000, 4))
    assert np.abs(numbers.mean(0)).max() < 0.03 and np.abs(np.cov(numbers.T) - np.eye(4)).max() < 0.03
    assert np.isfinite(normal(np.array([[0, 2**32 - 1, 0, 2**32 - 1]], np.uint32))).all()
    assert uniform(np.array([0, 2**31], np.uint32), 3, 5).tolist() == [3, 4]


@pytest.mark.parametrize("alpha", [0.1, 0.4, 1.0, 8.0])
def test_beta(alpha):
    """Against numpy's own draws."""
    ours = beta(words(40000), words(40000, seed=1), alpha)
    theirs = np.random.default_rng(2).beta(alpha, alpha, 400000)
    steps = np.linspace(0.01, 0.99, 41)
    assert ((ours >= 0) & (ours <= 1)).all()
    assert np.abs(np.quantile(ours, steps) - np.quantile(theirs, steps)).max() < 0.025
    assert ours.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.02)


class TestColourNoise:
    def test_it_is_normal_along_the_components(self):
        colour = Augment(SHAPE, noise=0.5, pca=PCA).draw(0, 0, np.arange(20000))["colour"]
        np.testing.assert_array_equal(colour[..., :3], np.tile(np.eye(3), (20000, 1, 1)))
        shift, gain = colour[..., 3], colour[..., 4]
        assert (gain == 1 / 1.5).all()
        amounts = np.linalg.solve(0.5 * np.array(PCA), shift.T)  # of each column
        assert np.abs(np.cov(amounts) - np.eye(3)).max() < 0.03

    def test_without_division(self):
        colour = Augment(SHAPE, noise=0.5, rescale=False, pca=PCA).draw(0, 0, np.arange(4))["colour"]
        assert (colour[..., 4] == 1).all()


class TestJitter:
    pixels = np.random.default_rng(0).integers(90, 160, (8, 9, 3), np.uint8)

    def applied(self, jitter, draws):
        """The pixels [n, H, W, 3] after what the words [n, 4] draw."""
        matrix, pull = jitter.maps(draws, 3)
        return np.einsum("nck,hwk->nhwc", matrix, self.pixels) + (pull @ self.pixels.mean((0, 1)))[:, None, None, None]

    @pytest.mark.parametrize(
        "name, place, enhance",
        [("brightness", 0, "Brightness"), ("contrast", 1, "Contrast"), ("saturation", 2, "Color")],
    )
    def test_each_is_what_pillow_does(self, name, place, enhance):
        draws = words(30, 4)
        for found, factor in zip(
            self.applied(Jitter(**{name: 0.3}), draws), uniform(draws[:, place], 0.7, 1.3), strict=True
        ):
            expected = getattr(ImageEnhance, enhance)(Image.fromarray(self.pixels)).enhance(factor)
            assert np.abs(found - np.asarray(expected)).max() < 1.5  # Pillow rounds, and the mean grey, too

    def test_hue_keeps_greys_and_brightness(self):
        matrix, pull = Jitter(hue=0.5).maps(words(50, 4), 3)
        np.testing.assert_allclose(matrix @ np.ones(3), 1, atol=1e-12)
        np.testing.assert_allclose(LUMA @ matrix, np.tile(LUMA, (50, 1)), atol=1e-12)
        assert not pull.any() and np.abs(matrix - np.eye(3)).max() > 0.5

    def test_in_every_order(self):
        """All together: against the operations one after the other, whatever comes first."""
        jitter, draws = Jitter(0.3, 0.3, 0.3, 0.2), words(20, 4)
        turned, _ = Jitter(hue=0.2).maps(draws, 3)
        factors = uniform(draws[:, :3], 0.7, 1.3)
        for found, factor, turn in zip(self.applied(jitter, draws), factors, turned, strict=True):
            for order in itertools.permutations(range(4)):
                np.testing.assert_allclose(found, self.one_by_one(order, factor, turn), rtol=1e-9, atol=1e-9)

    def one_by_one(self, order, factor, turn):
        x = self.pixels.astype(float)
        for kind in order:
            grey = (x @ LUMA)[..., None]
            x = x @ turn.T if kind == 3 else factor[kind] * x + (1 - factor[kind]) * (0.0, grey.mean(), grey)[kind]
        return x

    def test_of_grey_images(self):
        matrix, pull = Jitter(0.3, 0.3, 0.3).maps(words(40, 4), 1)
        assert matrix.shape == (40, 1, 1) and pull.shape == (40, 1)
        np.testing.assert_array_less(np.abs(matrix - 1), 0.7)


def test_erased_rectangles():
    how = Erasing(0.25, (0.1, 0.3), (0.5, 2.0))
    boxes = Augment(SHAPE, erasing=how).draw(0, 0, np.arange(20000))["erased"]
    top, left, height, width = boxes.T
    some = height > 0
    assert some.mean() == pytest.approx(0.25, abs=0.01) and not boxes[~some].any()
    assert (top + height <= 20).all() and (left + width <= 30).all() and (boxes >= 0).all()
    area, ratio = (height * width / 600)[some], (height / np.where(some, width, 1))[some]
    assert area.min() > 0.08 and area.max() < 0.33 and ratio.min() > 0.4 and ratio.max() < 2.4
    assert {0, 19 - 10} <= set(top[some]) and (top + height).max() == 20 and (left + width).max() == 30


class TestMixing:
    def test_mixup_blends_the_whole_image(self):
        drawn = Augment(SHAPE, mixup=0.4).draw(0, 0, np.arange(1000))
        assert (drawn["patch"] == (0, 0, 20, 30)).all()
        np.testing.assert_array_equal(drawn["blend"], drawn["share"])
        assert drawn["share"].std() > 0.3 and (drawn["partner"] == np.tile([1, -1], 500)).all()

    def test_cutmix_takes_a_part_and_as_much_of_the_label(self):
        drawn = Augment(SHAPE, cutmix=1.0).draw(0, 0, np.arange(4000))
        top, left, height, width = drawn["patch"].T
        assert not drawn["blend"].any()
        assert (top >= 0).all() and (left >= 0).all() and (top + height <= 20).all() and (left + width <= 30).all()
        np.testing.assert_allclose(drawn["share"], 1 - height * width / 600)
        assert 0.6 < drawn["share"].mean() < 0.75  # 1/2 of boxes that are whole, more of those cut off at the edges

    def test_one_of_both(self):
        drawn = EVERYTHING.draw(0, 0, np.arange(4000))
        assert (drawn["patch"] == (0, 0, 20, 30)).all(1).mean() == pytest.approx(0.5, abs=0.05)

    def settled(self, labels):
        labels = np.array(labels, np.int32)
        extras = Augment(SHAPE, mixup=0.4).draw(0, 0, np.arange(len(labels)))
        before = extras["share"].copy()
        settle(extras, labels)
        return extras, before

    @pytest.mark.parametrize("count", [1, 2, 5])
    def test_any_number_of_samples(self, count):
        """The last of an odd number is not mixed."""
        extras, before = self.settled(np.arange(count))
        pairs = count - count % 2
        assert extras["second"].tolist() == [i ^ 1 for i in range(pairs)] + [-1] * (count % 2)
        assert extras["share"].tolist() == [*before[:pairs], *[1.0] * (count % 2)]
        assert (extras["patch"][pairs:] == 0).all()

    def test_a_sample_without_a_label_is_mixed_with_none(self):
        extras, before = self.settled([3, -1, 4, 5])
        assert extras["second"].tolist() == [-1, -1, 5, 4]
        assert extras["share"].tolist() == [1, 1, *before[2:]] and not extras["patch"][:2].any()


def test_the_operation_does_what_is_drawn():
    """Shapes and meanings agree: mixing two images of one colour each gives their shares everywhere."""
    drawn = Augment(SHAPE, mixup=0.4).draw(0, 0, np.arange(3))
    labels = np.array([0, 1, 2], np.int32)
    settle(drawn, labels)
    pixels = np.ones((3, 20, 30, 3), np.uint8) * np.array([0, 100, 200], np.uint8)[:, None, None, None]
    y = np.empty((3, 20, 30, 3))
    given = {name: drawn[name] for name in ("partner", "patch", "blend")} | dict.fromkeys(("colour", "pull", "erased"))
    still = {"corner": np.zeros((3, 2), np.int32), "mirror": np.zeros(3, np.uint8)}
    AUGMENT.reference(Geometry(3, 20, 30, 3, 20, 30), pixels, **still, **given, mean=np.zeros(3), std=np.ones(3), y=y)
    expected = [100 * (1 - drawn["share"][0]), 100 * drawn["share"][1], 200]
    np.testing.assert_allclose(y, np.broadcast_to(expected, y.shape), rtol=1e-6)


class TestPolicy:
    def applied(self, policy, draws, channels=3):
        pixels = np.random.default_rng(0).integers(0, 256, (20, 24, channels), np.uint8)
        policy.apply(pixels, draws)
        return pixels

    @pytest.mark.parametrize("name", POLICIES)
    @pytest.mark.parametrize("channels", [1, 3])
    def test_every_operation_at_every_strength(self, name, channels):
        policy, seen = Policy(name), set()
        for which, strength, sign in itertools.product(range(len(OPERATIONS)), (0, 15, 30), (0, 1)):
            policy = Policy(name, 1, strength)
            word = [-(-(which << 32) // len(OPERATIONS)), -(-(strength << 32) // 31), sign << 31, 0]
            seen.add(self.applied(policy, np.array([word], np.uint32), channels).tobytes())
        assert len(seen) > 2 * len(OPERATIONS)

    def test_the_first_operation_changes_nothing(self):
        untouched = np.random.default_rng(0).integers(0, 256, (20, 24, 3), np.uint8)
        np.testing.assert_array_equal(self.applied(Policy("trivial"), np.zeros((1, 4), np.uint32)), untouched)

    def test_a_translation(self):
        """Of rand, by a share of the width: 24 * 150 / 331 * 15 / 30 = 5 pixels, black behind."""
        which = list(OPERATIONS).index("translate_x")
        word = np.array([[-(-(which << 32) // len(OPERATIONS)), 0, 0, 0]], np.uint32)
        moved, before = (
            self.applied(Policy("rand", 1, 15), word),
            self.applied(Policy("trivial"), np.zeros((1, 4), np.uint32)),
        )
        np.testing.assert_array_equal(moved[:, 5:], before[:, :-5])
        assert not moved[:, :5].any()
