"""What the network is fed: statistics files, mean images, augmentation from the config to the data layer."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from convnet import inputs, session
from convnet.cli import main
from convnet.config import ConfigError, load_config
from convnet.data import DataError
from convnet.data.augment import Augment, Erasing
from convnet.data.jitter import Jitter
from convnet.data.policy import Policy
from convnet.data.statistics import Statistics
from convnet.graph.engine import Engine
from convnet.graph.feed import Feed
from convnet.run import find_checkpoint
from convnet.samples import data_layer, labelled, restored
from kernels.backend import NumPy
from tests.convnet.networks import batch, rates, small
from tests.convnet.toy import last_files, write_toy

RNG = np.random.default_rng(5)
STATISTICS = Statistics(
    mean_image=RNG.uniform(80, 130, (13, 16, 1)),
    mean=np.array([100.0]),
    std=np.array([50.0]),
    pca_std=np.array([40.0]),
    pca_vectors=np.array([[-1.0]]),
)
AUGMENTED = (
    "data.train.color_jitter=0.4",
    "data.train.color_noise=0.1",
    "data.train.random_erasing=0.5",
    "data.train.mixup=0.2",
    "data.train.cutmix=1",
    "data.train.auto_augment=trivial",
)
OF_FILE = ("data.mean=image", "data.std=channels", "data.statistics=s.npz")


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_toy(tmp_path)
    STATISTICS.save("s.npz")
    return tmp_path


class TestStatistics:
    def test_a_file_holds_them_all(self, tmp_path):
        STATISTICS.save(tmp_path / "s.npz")
        found = Statistics.load(tmp_path / "s.npz", 1)
        for name, array in vars(STATISTICS).items():
            np.testing.assert_allclose(getattr(found, name), array, rtol=1e-6, err_msg=name)

    def test_components_are_columns(self):
        vectors = np.array([[0.0, 1.0], [1.0, 0.0]])
        found = Statistics(np.zeros((1, 1, 2)), np.zeros(2), np.ones(2), np.array([2.0, 3.0]), vectors)
        np.testing.assert_array_equal(found.components, [[0, 3], [2, 0]])

    def test_the_centre_of_the_mean_image(self):
        np.testing.assert_array_equal(STATISTICS.centre(10, 11)[0], STATISTICS.mean_image[1:11, 2:13, 0])
        with pytest.raises(DataError, match="expected a mean image of 14x3 or more, found 13x16"):
            STATISTICS.centre(14, 3)

    def test_what_is_no_such_file(self, tmp_path):
        path = tmp_path / "s.npz"
        with pytest.raises(DataError, match=r"s.npz' does not exist; `convnet check-data CFG` makes it"):
            Statistics.load(path, 1)
        for content in (b"", b"PK\x03\x04", b"nonsense"):
            path.write_bytes(content)
            with pytest.raises(DataError, match=r"s.npz' is no file of statistics") as caught:
                Statistics.load(path, 1)
            assert "pickle" not in str(caught.value)
        np.savez(path, mean=np.zeros(1))
        with pytest.raises(DataError, match=r"no file of statistics.*mean_image"):
            Statistics.load(path, 1)
        STATISTICS.save(path)
        with pytest.raises(DataError, match=r"expected 'mean_image' of the shape H x W x C for 3 .*\[13, 16, 1\]"):
            Statistics.load(path, 3)
        np.savez(path, **{**vars(STATISTICS), "std": np.zeros(1)})
        with pytest.raises(DataError, match="'std' holds what is no positive number"):
            Statistics.load(path, 1)


class TestNormalisation:
    def given(self, toy, *overrides):
        config = load_config("toy.yaml", overrides)
        return inputs.normalisation(config, session.make_network(config))

    def test_numbers(self, toy):
        assert [values.tolist() for values in self.given(toy)] == [[100], [60]]

    def test_of_the_statistics(self, toy):
        mean, std = self.given(toy, "data.mean=channels", "data.std=channels", "data.statistics=s.npz")
        assert (mean.tolist(), std.tolist()) == ([100], [50])
        mean, std = self.given(toy, "data.mean=image", "data.statistics=s.npz")
        np.testing.assert_allclose(mean[0], STATISTICS.mean_image[1:11, 3:13, 0], rtol=1e-6)
        assert std.tolist() == [60]

    def test_a_mean_image_that_is_too_small(self, toy):
        with pytest.raises(
            DataError, match=r"data.mean: expected a mean image of 14x14 or more, found 13x16 in .*check-data"
        ):
            self.given(toy, *OF_FILE, "layers.data.size=14")

    def test_a_file_that_is_not_there(self, toy):
        with pytest.raises(DataError, match=r"data.statistics: 'no.npz' does not exist.*is relative to"):
            self.given(toy, "data.mean=image", "data.statistics=no.npz")

    def test_training_and_evaluation_see_the_mean_image(self, toy, capsys):
        """And so does whoever opens the checkpoint, without the file; and a resumed run has the same bits."""
        assert main(["train", "toy.yaml", "--device", "cpu", *OF_FILE, "run.dir=whole"]) == 0
        assert main(["train", "toy.yaml", "--device", "cpu", *OF_FILE, "run.dir=part", "train.epochs=2"]) == 0
        assert main(["train", "toy.yaml", "--device", "cpu", "--resume", "part", "train.epochs=3"]) == 0
        assert last_files("whole") == last_files("part")
        found = find_checkpoint(Path("whole"), print)
        Path("s.npz").unlink()
        _, engine = session.open_checkpoint(found, NumPy())
        np.testing.assert_allclose(engine.arrays["mean"][0], STATISTICS.mean_image[1:11, 3:13, 0], rtol=1e-6)
        assert engine.arrays["std"].tolist() == [50]
        _, engine = session.open_checkpoint(found, NumPy(), ["data.mean=7", "data.std=2"])
        assert (engine.arrays["mean"].tolist(), engine.arrays["std"].tolist()) == ([7], [2])


class TestOptions:
    def augment(self, toy, *overrides):
        config = load_config("toy.yaml", overrides)
        return inputs.augmentation(config, session.make_network(config)), inputs.policy(config.data.train)

    def test_nothing_by_default(self, toy):
        assert self.augment(toy) == (Augment((1, 10, 10)), None)

    def test_every_option_arrives(self, toy):
        augment, policy = self.augment(
            toy,
            "data.statistics=s.npz",
            "data.train.color_jitter={brightness: 0.1, contrast: 0.2, saturation: 0.3, hue: 0.4}",
            "data.train.color_noise={strength: 0.5, rescale: false}",
            "data.train.random_erasing={probability: 0.6, area: [0.1, 0.2], ratio: [0.5, 3]}",
            "data.train.mixup=0.7",
            "data.train.cutmix=0.8",
            "data.train.auto_augment={policy: rand, operations: 3, magnitude: 4}",
        )
        expected = Augment(
            (1, 10, 10),
            Jitter(0.1, 0.2, 0.3, 0.4),
            0.5,
            False,
            ((-40.0,),),
            Erasing(0.6, (0.1, 0.2), (0.5, 3.0)),
            0.7,
            0.8,
        )
        assert (augment, policy) == (expected, Policy("rand", 3, 4))

    def test_one_word_for_a_section(self, toy):
        augment, policy = self.augment(toy, "data.statistics=s.npz", *AUGMENTED)
        assert augment.jitter == Jitter(0.4, 0.4, 0.4, 0) and augment.erasing == Erasing(0.5) and augment.rescale
        assert policy == Policy("trivial")

    @pytest.mark.parametrize(
        "override, words",
        [
            ("data.mean=image", "data.mean: needs data.statistics"),
            ("data.std=channels", "data.std: needs data.statistics"),
            ("data.train.color_noise=0.1", "data.train.color_noise: needs data.statistics"),
            ("data.mean=picture", "data.mean: expected .* image, found 'picture'"),
            ("data.val.mixup=0.1", "data.val.mixup: is for training alone"),
            ("data.val.auto_augment=rand", "data.val.auto_augment: is for training alone"),
            ("data.val.mirror=true", "data.val.mirror: is for training alone"),
            ("data.val.crop=random", "data.val.crop: expected center in evaluation, found random"),
            (
                "data.train.random_erasing={area: [0.3, 0.2]}",
                r"area: expected the least and the most, found \[0.3, 0.2\]",
            ),
            ("data.train.auto_augment=randd", "expected one of trivial, rand, found 'randd'"),
            ("data.train.mixup=-1", "data.train.mixup: expected a number >= 0 and <= 100"),
        ],
    )
    def test_mistakes(self, toy, override, words):
        with pytest.raises(ConfigError, match=words):
            load_config("toy.yaml", [override])

    def test_pairs_are_not_torn_apart_by_accumulation(self, toy):
        for accumulate, words in ((2, "found an odd one"), (3, "")):
            config = load_config(
                "toy.yaml", ["data.train.mixup=1", "train.batch_size=6", f"train.accumulate={accumulate}"]
            )
            if words:
                with pytest.raises(ConfigError, match=f"train.accumulate: .*{words}"):
                    inputs.augmentation(config, session.make_network(config))
            else:
                inputs.augmentation(config, session.make_network(config))


class TestRuns:
    def test_a_resumed_run_has_the_same_bits(self, toy, capsys):
        """With everything, an odd batch size, and an image that cannot be read."""
        Path("images/train/a/000.jpg").write_bytes(b"broken")
        options = ("--device", "cpu", *OF_FILE, *AUGMENTED, "data.train.on_error=skip")
        assert main(["train", "toy.yaml", *options, "run.dir=whole", "data.threads=1"]) == 0
        assert main(["train", "toy.yaml", *options, "run.dir=part", "train.epochs=2", "data.threads=3"]) == 0
        assert main(["train", "toy.yaml", "--device", "cpu", "--resume", "part", "train.epochs=3"]) == 0
        assert last_files("whole") == last_files("part")

    @pytest.mark.parametrize("size", [1, 2, 5])
    def test_mixed_batches_of_any_size(self, toy, size, capsys):
        options = ["data.train.mixup=0.5", "data.train.cutmix=0.5", f"train.batch_size={size}", "train.epochs=1"]
        assert main(["train", "toy.yaml", "--device", "cpu", *options, "train.last_batch=keep"]) == 0

    def test_samples(self, toy, capsys):
        pytest.importorskip("matplotlib")
        assert main(["plot", "samples", "toy.yaml", "--device", "cpu", "--count", "9", *OF_FILE, *AUGMENTED]) == 0
        assert capsys.readouterr().out == "samples.png\n"
        with Image.open("samples.png") as image:
            assert np.asarray(image.convert("L")).std() > 10


def test_samples_are_what_the_data_layer_makes(toy):
    config = load_config("toy.yaml", [*OF_FILE, "data.train.mirror=false", "data.train.crop=center"])
    network = session.make_network(config)
    source = session.make_source(config, "train")
    engine = session.make_engine(config, network, NumPy())
    with session.make_pipeline(config, network, config.data.train, source, NumPy(), train=True) as pipeline:
        given = next(pipeline.batches())
        images = restored(data_layer(engine, given), *inputs.normalisation(config, network))
        np.testing.assert_allclose(images, np.repeat(given.pixels, 3, axis=3) / 255, atol=1e-6)
        assert labelled(source.classes, given, 0) == source.classes[given.labels[0]]


class TestEngine:
    def test_images_that_are_cut_on_the_device(self):
        """Of other sizes in training and evaluation: as if they had been cut before."""
        network = small()
        feeds = Feed(source=(14, 13)), Feed(source=(11, 20))
        ours = Engine(network, NumPy(), batch_size=6, feeds=feeds)
        theirs = Engine(network, NumPy(), batch_size=6)
        for engine in (ours, theirs):
            engine.initialize()
        rng = np.random.default_rng(0)
        for step in range(2):
            large, given = rng.integers(0, 256, (6, 14, 13, 3), np.uint8), batch(6, network, step)
            corner = rng.integers((0, 0), (5, 2), (6, 2))
            cut = np.stack([image[y : y + 10, x : x + 12] for image, (y, x) in zip(large, corner, strict=True)])
            theirs.train(**{**given, "pixels": cut}, step=step, rates=rates(theirs))
            ours.train(**{**given, "pixels": large, "corner": corner}, step=step, rates=rates(ours))
        large = rng.integers(0, 256, (6, 11, 20, 3), np.uint8)
        found = ours.evaluate(large, given["labels"], corner=np.tile([1, 5], (6, 1)))
        expected = theirs.evaluate(np.ascontiguousarray(large[:, 1:, 5:17]), given["labels"])
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)

    def test_what_does_not_fit_is_named(self):
        engine, given = Engine(small(), NumPy(), batch_size=6), batch(6, small())
        with pytest.raises(ValueError, match=r"pixels: expected the shape \[6, 10, 12, 3\], found \[6, 9, 12, 3\]"):
            engine.feed(**{**given, "pixels": given["pixels"][:, 1:]}, step=0, offset=0)
        with pytest.raises(ValueError, match=r"expected batches with .*labels, found .*share"):
            engine.feed(**given, share=np.ones(6), step=0, offset=0)

    def test_parts_of_a_mixed_batch_make_the_whole(self):
        """The same step in one part and in three, whose samples are mixed in pairs."""
        network, draw = (
            small(bn1={"type": "pass"}, drop={"type": "pass"}),
            Augment((3, 10, 12), mixup=1.0, cutmix=1.0),
        )
        drawn, given = draw.draw(0, 0, np.arange(6)), batch(6, network)
        drawn["second"] = given["labels"][[1, 0, 3, 2, 5, 4]]
        found = []
        for accumulate in (1, 3):
            feeds = Feed(extras=draw.names), Feed()
            engine = Engine(
                network, NumPy(), batch_size=6, accumulate=accumulate, eval_batch=6, dtype=np.float64, feeds=feeds
            )
            engine.initialize()
            engine.train(**given, **drawn, step=0, rates=rates(engine))
            found.append(engine.tensors())
            assert np.isfinite(engine.history(0, 1)).all()
        for name in found[0]:
            np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-9, atol=1e-12, err_msg=name)

    def test_the_loss_of_a_mixed_step(self):
        """Samples that are not blended, with two labels: the loss is the mean of both, by their shares."""
        network = small(drop={"type": "pass"})
        extras = ("partner", "patch", "blend", "second", "share")
        engine = Engine(network, NumPy(), batch_size=6, feeds=(Feed(extras=extras), Feed()), dtype=np.float64)
        engine.initialize()
        given, share = batch(6, network), np.linspace(0, 1, 6)
        other = (given["labels"] + 1) % 4
        still = {"partner": np.zeros(6), "patch": np.zeros((6, 4)), "blend": np.ones(6)}

        def loss(labels, second, share):
            engine.feed(**{**given, "labels": labels}, **still, second=second, share=share, step=0, offset=0)
            executor = engine.executor("loss", 6)
            executor.run()
            recorded, _ = engine.plan("loss", 6)
            return executor.array(recorded.results[0])[0, 0, 0].copy()

        none, one = np.full(6, -1), np.ones(6)
        first, second = loss(given["labels"], none, one), loss(other, none, one)
        np.testing.assert_allclose(loss(given["labels"], other, share), share * first + (1 - share) * second)
