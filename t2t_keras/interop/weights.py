"""Weights of other people's models: files of named arrays, and their way into a `Transformer`.

`read_safetensors`, `read_keras` and `read_torch` read files without running anything in them.
`Arrays` returns each array once, by name and shape, and reports missing and unused ones.
`set_layers` puts them into a model.
"""

import json
import math
import os
import re

import numpy as np

from t2t_keras.errors import InputError, reason_of
from t2t_keras.interop.files import check_file
from t2t_keras.models.sub_layers import sub_layers

_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_SAFETENSORS_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "bfloat16"}
"""{name: NumPy's}; TensorFlow tells NumPy of bfloat16."""

BANNED = -1e4
"""Bias of ids that are never output; finite, since label smoothing adds up all logits."""


class Arrays:
    """The arrays of a model, {name: array}; each may be taken once. `place` is their file."""

    def __init__(self, arrays, place):
        self._arrays = dict(arrays)
        self.place = place

    def __contains__(self, name):
        return name in self._arrays

    def shape(self, name, *expected):
        """Returns the shape of an array, a tuple; None in `expected` allows any size.

        Raises:
            InputError: if it is missing, or has another shape.
        """
        if name not in self._arrays:
            raise InputError(
                f"{self.place} has no tensor {name}: copy it again; or it is another kind of model."
            )
        shape = tuple(self._arrays[name].shape)
        fits = len(shape) == len(expected)
        if not fits or any(w not in (None, f) for f, w in zip(shape, expected, strict=True)):
            wanted = ", ".join("any" if size is None else str(size) for size in expected)
            raise InputError(
                f"{self.place} has {name} of shape {list(shape)}, and the configuration says "
                f"[{wanted}]: copy both files of one model."
            )
        return shape

    def take(self, name, *shape):
        """Removes an array and returns it as float32; it may be read-only.

        Raises:
            InputError: as `shape`, or if values are not finite.
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
            InputError: as `take`, or if they differ.
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
        matches = (re.match(rf"{re.escape(beginning)}(\d+)", name) for name in self._arrays)
        return len({match[1] for match in matches if match})

    def require_empty(self):
        """Raises InputError if an array was not taken."""
        if self._arrays:
            names = ", ".join(sorted(self._arrays)[:3])
            raise InputError(
                f"{self.place} has {len(self._arrays)} tensors that this architecture does not "
                f"have, such as {names}: it is another kind of model."
            )


def set_layers(model, channels, linear, norm):
    """Sets the weights of a `Transformer`'s layers, and of the norms after its stacks.

    Side, number and sub-layer are those of `models.sub_layers.SubLayer`.

    Args:
        model: `Transformer`.
        channels: int [model_dim], the file's channels in the model's order.
        linear: function of (side, layer's number, sub-layer, linear layer's number in it, inputs,
            outputs) to a list of (kernel [inputs, …], bias [outputs, …]), which become adjacent
            columns.
        norm: function of (side, layer's number, sub-layer) to (gamma, beta) [model_dim]; number and
            sub-layer are None for the norm after a stack.

    Raises:
        InputError: if the file has a bias and a layer has none.
    """
    for side, number, name, layers, its_norm in sub_layers(model):
        for index, one in enumerate(layers):
            parts = linear(side, number, name, index, *one.kernel.shape)
            # The last one writes what all others and the norms read.
            _set_linear(one, parts, channels, writes=one is layers[-1])
        gamma, beta = norm(side, number, name)
        its_norm.gamma.assign(gamma[channels])
        its_norm.beta.assign(beta[channels])


def _set_linear(layer, parts, channels, writes):
    kernels, biases = zip(*parts, strict=True)
    kernel, bias = np.concatenate(kernels, axis=1), np.concatenate(biases)
    layer.kernel.assign(kernel[:, channels] if writes else kernel[channels])
    if layer.bias is not None:
        layer.bias.assign(bias[channels] if writes else bias)
    elif np.any(bias):
        raise InputError(
            f"{layer.path} has a bias in the file of weights, and other projections of this "
            "attention have none: such models are not supported."
        )


def alternating_channels(model_dim):
    """Returns the indices that turn halves of sines and cosines into alternating channels."""
    return np.arange(model_dim).reshape(2, model_dim // 2).T.ravel()


# Files --------------------------------------------------------------------------------------------


_MALFORMED = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)


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
                place, shape = ([*map(int, entry[key])] for key in ("data_offsets", "shape"))
                start, stop = place
                entries.append((start, stop, name, str(entry["dtype"]), shape))
        except _MALFORMED as error:
            raise damaged(f"its header cannot be read: {error}") from error
    empty = size == 8 + length
    content = np.zeros(0, np.uint8) if empty else np.memmap(path, np.uint8, "r")[8 + length :]
    arrays, end = {}, 0
    for start, stop, name, dtype, shape in sorted(entries):
        if dtype not in _SAFETENSORS_DTYPES:
            known = ", ".join(_SAFETENSORS_DTYPES)
            raise InputError(f"{path} holds {name} as {dtype}: only {known} are read.")
        numpy_dtype = np.dtype(_SAFETENSORS_DTYPES[dtype])
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


_LAYERS_OF_KERAS = re.compile(r"(?:^|/)((?:encoder|decoder)/.+)/(\w+):0$")
_BIASES_OF_KERAS, _WEIGHTS_OF_KERAS = ("beta", "bias"), ("kernel", "gamma", "embeddings", "weight")


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
        elif layer and layer[2] in _BIASES_OF_KERAS + _WEIGHTS_OF_KERAS:
            part = "bias" if layer[2] in _BIASES_OF_KERAS else "weight"
            ours = f"model.{layer[1].replace('/', '.')}.{part}"
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
            "'t2t_keras[torch]'), or save the model as model.safetensors."
        ) from error
    try:
        tensors = torch.load(os.fspath(path), map_location="cpu", weights_only=True)
        arrays = {}
        for name, tensor in tensors.items():  # several names of one matrix stay one in memory
            is_bfloat16 = tensor.dtype == torch.bfloat16  # which NumPy has not
            arrays[name] = (tensor.to(torch.float32) if is_bfloat16 else tensor).numpy()
        return arrays
    except Exception as error:  # of many kinds, by what is wrong with the file
        raise InputError(
            f"{path} holds no PyTorch weights ({reason_of(error)}): copy it again."
        ) from error
