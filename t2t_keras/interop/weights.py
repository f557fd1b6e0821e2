"""Weights of other people's models: files of named arrays, and their way into a `Transformer`.

`read_safetensors`, `read_keras` and `read_torch` read files without running anything in them.
`Arrays` returns each array once, by name and shape, and reports missing and unused ones.
`set_linear` and `set_norm` put arrays into layers.
"""

import json
import math
import os
import re

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.interop.files import check_file

_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_SAFETENSORS_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "bfloat16"}


BANNED = -1e4
"""Bias of ids that are never output; finite, since label smoothing adds up all logits."""


class Arrays:
    """The arrays of a model; each may be taken once.

    Args:
        arrays: {name: array}.
        place: str, the file, for messages.

    Attributes:
        place: as given.
    """

    def __init__(self, arrays, place):
        self._arrays = dict(arrays)
        self.place = place

    def __contains__(self, name):
        return name in self._arrays

    def shape(self, name, *expected):
        """Returns the shape of an array, a tuple.

        Args:
            name: str.
            expected: its sizes; None allows any size.

        Raises:
            InputError: if it is missing, or has another shape.
        """
        if name not in self._arrays:
            raise InputError(
                f"{self.place} has no tensor {name}: copy it again; or it is another kind of model."
            )
        found = tuple(self._arrays[name].shape)
        fits = len(found) == len(expected)
        if not fits or any(w not in (None, f) for f, w in zip(found, expected, strict=True)):
            wanted = ", ".join("any" if size is None else str(size) for size in expected)
            raise InputError(
                f"{self.place} has {name} of shape {list(found)}, and the configuration says "
                f"[{wanted}]: copy both files of one model."
            )
        return found

    def take(self, name, *shape):
        """Removes an array and returns it as float32; it may be read-only.

        Raises:
            InputError: if `shape` raises it, or if values are not finite.
        """
        self.shape(name, *shape)
        with np.errstate(over="ignore"):
            array = np.asarray(self._arrays.pop(name)).astype(np.float32, copy=False)
        if not np.all(np.isfinite(array)):
            raise InputError(f"{self.place}: values of {name} are not finite: copy it again.")
        return array

    def take_equal(self, names, *shape):
        """Returns the array that is stored under one or more of several names.

        Raises:
            InputError: if `take` raises it, or if they differ.
        """
        present = [name for name in names if name in self] or names[:1]
        first = self.take(present[0], *shape)
        for name in present[1:]:  # one after the other: such arrays are large
            if not np.array_equal(first, self.take(name, *shape)):
                raise InputError(
                    f"{self.place}: {present[0]} and {name} differ, but the configuration says "
                    "that they are one matrix: save the model again."
                )
        return first

    def take_optional(self, name, *shape):
        """Takes an array like `take`; returns None if it is missing."""
        return self.take(name, *shape) if name in self else None

    def has_any(self, ending):
        """Returns whether an array has a name with this ending."""
        return any(name.endswith(ending) for name in self._arrays)

    def count(self, beginning):
        """Returns the number of layers whose names begin like `encoder/layer_`."""
        found = (re.match(rf"{re.escape(beginning)}(\d+)", name) for name in self._arrays)
        return len({match[1] for match in found if match})

    def require_empty(self):
        """Raises InputError if an array was not taken."""
        if self._arrays:
            names = ", ".join(sorted(self._arrays)[:3])
            raise InputError(
                f"{self.place} has {len(self._arrays)} tensors that this architecture does not "
                f"have, such as {names}: it is another kind of model."
            )


def set_linear(layer, parts, rows=None, columns=None):
    """Sets the weights of a `Linear` or `FusedProjections`.

    Args:
        layer: the layer.
        parts: list of (kernel [inputs, outputs], bias [outputs]), which become adjacent columns.
        rows: int [inputs] or None, the file's inputs in the layer's order.
        columns: int [outputs] or None, the file's outputs in the layer's order.

    Raises:
        InputError: if the file has a bias and the layer has none.
    """
    kernels, biases = zip(*parts, strict=True)
    kernel, bias = np.concatenate(kernels, axis=1), np.concatenate(biases)
    kernel = kernel if rows is None else kernel[rows]
    if columns is not None:
        kernel, bias = kernel[:, columns], bias[columns]
    layer.kernel.assign(kernel)
    if layer.bias is not None:
        layer.bias.assign(bias)
    elif np.any(bias):
        raise InputError(
            f"{layer.path} has a bias in the file of weights, and other projections of this "
            "attention have none: such models are not supported."
        )


def set_norm(layer, gamma, beta, channels=slice(None)):
    """Sets the weights of a `LayerNorm`.

    Args:
        layer: the layer.
        gamma, beta: [model_dim].
        channels: int [model_dim], the file's channels in the layer's order.
    """
    layer.gamma.assign(gamma[channels])
    layer.beta.assign(beta[channels])


def alternating_channels(model_dim):
    """Returns the indices that turn halves of sines and cosines into alternating channels."""
    return np.arange(model_dim).reshape(2, model_dim // 2).T.ravel()


# Files --------------------------------------------------------------------------------------------


def read_safetensors(path):
    """Returns the arrays of a safetensors file, {name: array}, mapped into memory.

    Raises:
        InputError: if the file is damaged, or contains a type other than floats.
    """
    check_file(path)
    path = os.fspath(path)

    def damaged(reason):
        return InputError(f"{path} is damaged ({reason}): copy it again.")

    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
            raise damaged(f"a header of {length} bytes in a file of {size}")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            entries = []
            for name, entry in header.items():
                start, stop = map(int, entry["data_offsets"])
                entries.append(
                    (start, stop, name, str(entry["dtype"]), [*map(int, entry["shape"])])
                )
        except (
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ) as error:
            raise damaged(f"its header cannot be read: {error}") from error
    content = (
        np.memmap(path, np.uint8, "r")[8 + length :] if size > 8 + length else np.zeros(0, "u1")
    )
    arrays, end = {}, 0
    for start, stop, name, dtype, shape in sorted(entries):
        if dtype not in _SAFETENSORS_DTYPES:
            known = ", ".join(_SAFETENSORS_DTYPES)
            raise InputError(f"{path} holds {name} as {dtype}: only {known} are read.")
        numpy_dtype = _dtype(_SAFETENSORS_DTYPES[dtype])
        expected = math.prod(shape) * numpy_dtype.itemsize
        if min(shape, default=0) < 0 or start != end or stop - start != expected:
            raise damaged(f"{name} of shape {shape} is at bytes {start} to {stop}")
        if stop > len(content):
            raise damaged(f"{name} ends at byte {stop} of {len(content)}")
        arrays[name] = content[start:stop].view(numpy_dtype).reshape(shape)
        end = stop
    if end != len(content):
        raise damaged(f"{len(content) - end} bytes belong to no tensor")
    return arrays


def _dtype(name):
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes  # noqa: PLC0415  TensorFlow needs it, too

    return np.dtype(ml_dtypes.bfloat16)


_LAYERS_OF_KERAS = re.compile(r"(?:^|/)((?:encoder|decoder)/.+)/(\w+):0$")
_PARAMETERS_OF_KERAS = {
    "kernel": "weight",
    "gamma": "weight",
    "embeddings": "weight",
    "weight": "weight",
    "beta": "bias",
    "bias": "bias",
}


def read_keras(path):
    """Returns the arrays of a tf_model.h5, {name: array}, by the names of PyTorch's files.

    Hugging Face's TensorFlow classes (transformers 4) wrote these files. The names are those of
    PyTorch's model behind the names of scopes, and kernels are transposed.

    Raises:
        InputError: if the file is damaged, or contains anything else.
    """
    import h5py  # noqa: PLC0415  as in Keras

    check_file(path)
    arrays = {}

    def take(name, item):
        if not isinstance(item, h5py.Dataset):
            return
        layer = _LAYERS_OF_KERAS.search(name)
        if name.endswith("final_logits_bias:0"):
            ours = "final_logits_bias"
        elif "/model.shared/" in name or "/shared/" in name:
            ours = "model.shared.weight"
        elif layer and layer[2] in _PARAMETERS_OF_KERAS:
            ours = f"model.{layer[1].replace('/', '.')}.{_PARAMETERS_OF_KERAS[layer[2]]}"
        else:
            raise InputError(f"{path} has the weight {name}: it is another kind of model.")
        if ours in arrays or item.dtype.kind != "f":
            raise InputError(f"{path} has {name} twice, or not as floats: copy it again.")
        arrays[ours] = item[()].T if name.endswith("/kernel:0") else item[()]

    try:
        with h5py.File(path, "r") as file:
            file.visititems(take)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged ({error}): copy it again.") from error
    return arrays


def read_torch(path):
    """Returns the arrays of a PyTorch file of weights, {name: array}.

    PyTorch reads it with `weights_only=True`, which runs no code of the file.

    Raises:
        InputError: if PyTorch is not installed, or the file contains anything except tensors.
    """
    check_file(path)
    try:
        import torch  # noqa: PLC0415  only for such files
    except ImportError as error:
        raise InputError(
            f"{path} can be read with PyTorch only: install the extra torch (pip install "
            "'.[torch]'), or save the model as model.safetensors."
        ) from error
    try:
        found = torch.load(os.fspath(path), map_location="cpu", weights_only=True)
        arrays = {}
        for name, tensor in found.items():  # several names of one matrix stay one in memory
            is_bfloat16 = tensor.dtype == torch.bfloat16  # which NumPy has not
            arrays[name] = (tensor.to(torch.float32) if is_bfloat16 else tensor).numpy()
        return arrays
    except Exception as error:  # of many kinds, by what is wrong with the file
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path} holds no PyTorch weights ({reason}): copy it again.") from error
