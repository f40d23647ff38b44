"""PyTorch's files are read without PyTorch, and nothing in them is called."""

import pickle
import zipfile

import numpy as np
import pytest

from convnet.errors import UserError
from convnet.formats.pytorch import read_pytorch
from tests.convnet.pickles import Storage, Tensor, save_stream, save_zip, state

ARRAYS = {
    "conv.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2) / 7,
    "bn.running_var": np.linspace(0, 1, 5),
    "bn.num_batches_tracked": np.array(12, np.int64),
    "mask": np.array([True, False]),
    "half": np.array([1.5, -2], np.float16),
    "empty": np.zeros((0, 3), np.float32),
}


@pytest.mark.parametrize("save, name", [(save_zip, "net.pth"), (save_stream, "net.old")])
def test_both_formats(save, name, tmp_path):
    save(tmp_path / name, state(ARRAYS))
    found = read_pytorch(tmp_path / name)
    assert list(found) == list(ARRAYS)
    for key, array in ARRAYS.items():
        assert found[key].dtype == array.dtype and found[key].shape == array.shape
        assert np.array_equal(found[key], array)


def test_views_of_one_storage(tmp_path):
    storage = Storage("0", np.arange(12, dtype=np.float32))
    save_zip(tmp_path / "a.pth", {"t": Tensor(storage, (4, 3), (1, 4)), "part": Tensor(storage, (2,), (3,), offset=5)})
    found = read_pytorch(tmp_path / "a.pth")
    assert np.array_equal(found["t"], np.arange(12).reshape(3, 4).T)
    assert np.array_equal(found["part"], [5, 8])


def test_bfloat16_becomes_float32(tmp_path):
    bits = (np.array([1.5, -3.0, 1024.0], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    save_zip(tmp_path / "a.pth", {"w": Tensor(Storage("0", bits, "BFloat16Storage"), (3,))})
    assert read_pytorch(tmp_path / "a.pth")["w"].tolist() == [1.5, -3.0, 1024.0]


class Run:
    """A value that calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("save, name", [(save_zip, "net.pth"), (save_stream, "net.old")])
def test_what_weights_do_not_need_is_refused_by_name(save, name, tmp_path):
    marker = tmp_path / "ran"
    save(tmp_path / name, {"w": Run(open, str(marker), "w")})
    with pytest.raises(UserError, match=r"net\.\w+: not a readable PyTorch file of weights: it names io\.open, which"):
        read_pytorch(tmp_path / name)
    assert not marker.exists()


def wide(offset=0, shape=(2,), strides=(1,)):
    return {"w": Tensor(Storage("0", np.zeros(3, np.float32)), shape, strides, offset)}


@pytest.mark.parametrize(
    "value, expected",
    [
        (wide(offset=2), "a tensor reaches outside its storage of 3 elements"),
        (wide(shape=(2, 2), strides=(2, 1)), "a tensor reaches outside"),
        (wide(offset=-1), "a tensor reaches outside"),
        (wide(strides=(-1,), offset=1), "a tensor reaches outside"),
        ([1, 2], "expected a mapping of names to tensors, found list"),
        ({"model": state(ARRAYS)}, "expected a tensor under 'model', found OrderedDict"),
        ({3: wide()["w"]}, "expected names of tensors, found the key 3"),
    ],
)
def test_other_contents(value, expected, tmp_path):
    save_zip(tmp_path / "a.pth", value)
    with pytest.raises(UserError, match=expected):
        read_pytorch(tmp_path / "a.pth")


def test_damaged_files(tmp_path):
    path = tmp_path / "a.pth"
    save_zip(path, state(ARRAYS), cut=4)
    with pytest.raises(UserError, match="storage 0 has 23 elements of 24; the file may be cut off"):
        read_pytorch(path)
    save_zip(path, state(ARRAYS), byteorder=b"big")
    with pytest.raises(UserError, match="not little-endian"):
        read_pytorch(path)
    for data in (b"", b"text", pickle.dumps({"a": 1}), pickle.dumps(3)[:-1], path.read_bytes()[:-30]):
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"a\.pth: not a readable PyTorch file"):
            read_pytorch(path)
    save_stream(tmp_path / "b.old", state(ARRAYS))
    whole = (tmp_path / "b.old").read_bytes()
    for end in range(0, len(whole) - 1, 37):
        path.write_bytes(whole[:end])
        with pytest.raises(UserError, match=r"a\.pth: not a readable PyTorch file"):
            read_pytorch(path)


@pytest.mark.parametrize("kind", ["FloatStorage", "BFloat16Storage"])
def test_an_expanded_tensor_takes_no_memory(kind, tmp_path):
    """As torch.save writes expand() and broadcast_to(): of any size, in a file of a few bytes."""
    values = np.array([1.5, -2, 3], np.float32)
    values = (values.view(np.uint32) >> 16).astype(np.uint16) if kind == "BFloat16Storage" else values
    tensors = {
        "a": Tensor(Storage("0", values, kind), (4, 3), (0, 1)),
        "b": Tensor(Storage("1", values, kind), (2**40,), (0,)),
    }
    save_zip(tmp_path / "a.pth", tensors)
    found = read_pytorch(tmp_path / "a.pth")
    assert found["a"].tolist() == [[1.5, -2, 3]] * 4
    assert found["b"].shape == (2**40,) and found["b"][-1] == 1.5
    save_zip(tmp_path / "a.pth", wide(shape=(2**40, 2**40), strides=(0, 0)))
    with pytest.raises(UserError, match=r"a\.pth: not a readable PyTorch file"):
        read_pytorch(tmp_path / "a.pth")


def test_what_is_wrong_with_a_file_is_told(tmp_path):
    path = tmp_path / "a.pth"
    save_stream(path, state(ARRAYS))
    whole = path.read_bytes()
    for data, expected in [
        (b"", "it is empty"),
        (b"hello, world", "it has neither of PyTorch's two formats"),
        (pickle.dumps(3), "it has neither of PyTorch's two formats"),
        (whole[: len(whole) // 4], "; the file may be cut off"),
        (whole[:-9], "; the file may be cut off"),
    ]:
        path.write_bytes(data)
        with pytest.raises(UserError, match=f"PyTorch file of weights: .*{expected}$"):
            read_pytorch(path)


@pytest.mark.parametrize("field, value", [(6, 1), (6, 1 << 6), (8, 99)])
def test_zip_files_of_other_kinds(field, value, tmp_path):
    """Encrypted, strongly encrypted, and compressed in an unknown way."""
    path = tmp_path / "a.pth"
    save_zip(path, state(ARRAYS))
    data = bytearray(path.read_bytes())
    data[field] = value
    data[data.index(b"PK\1\2") + field + 2] = value
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"a\.pth: not a readable PyTorch file of weights: "):
        read_pytorch(path)


def test_damaged_compression(tmp_path):
    path = tmp_path / "a.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net/data.pkl", pickle.dumps({}))
    data = bytearray(path.read_bytes())
    start = data.index(b"data.pkl") + 8
    data[start : start + 2] = b"\xff\xff"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"a\.pth: not a readable PyTorch file of weights: "):
        read_pytorch(path)


def test_a_file_does_not_change_what_reads_the_next(tmp_path):
    """BUILD, an instruction of pickles, would write to the type of a storage, which outlives the file."""
    save_zip(tmp_path / "good.pth", wide())
    path = tmp_path / "bad.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", b"ctorch\nFloatStorage\n(S'name'\nS'x'\ndb.")
    with pytest.raises(UserError, match="it changes what it is made of"):
        read_pytorch(path)
    assert list(read_pytorch(tmp_path / "good.pth")) == ["w"]


def test_a_zip_file_that_is_cut_off(tmp_path):
    path = tmp_path / "a.pth"
    save_zip(path, state(ARRAYS))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match=r"a zip file without its end; it may be cut off"):
        read_pytorch(path)
