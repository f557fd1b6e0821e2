"""Folders of models that are not read: what they are, by their files, and what to do instead.

Start with `explain`, a sentence for an error.
"""

import pathlib

_UNFINISHED = ("*.incomplete", "*.part", "*.crdownload", "*.aria2")
_CONVERT = "convert it by {} of CTranslate2, and import what that writes"
_KINDS = (
    # patterns of files, what the folder holds, what to do
    (
        ("adapter_config.json", "adapter_model.*"),
        "a PEFT adapter without its base model",
        "merge it into the base model by merge_and_unload of peft, and save that",
    ),
    (("predictor.json",), "a workdir or saved predictor of this library", "use it as it is"),
    (("saved_model.pb",), "a SavedModel", "translate with it by --saved_model"),
    (("*.npz",), "a model in Marian's own format", _CONVERT.format("ct2-marian-converter")),
    (("dict.*.txt",), "a checkpoint of fairseq", _CONVERT.format("ct2-fairseq-converter")),
    (("*.onnx",), "a model in the format ONNX", "get it in its original format"),
    (("*.gguf", "*.ggml"), "a model in the format GGUF", "get it in its original format"),
    (
        ("flax_model*.msgpack", "rust_model.ot"),
        "weights for Flax or Rust alone",
        "get model.safetensors, tf_model.h5 or pytorch_model.bin of the model",
    ),
    (
        ("*.ckpt*", "ckpt-*", "checkpoint"),
        "a checkpoint of TensorFlow",
        _CONVERT.format("ct2-opennmt-tf-converter"),
    ),
    (
        ("*.pt", "*.pth"),
        "a checkpoint of PyTorch, such as of OpenNMT-py",
        _CONVERT.format("ct2-opennmt-py-converter"),
    ),
    (("*.alphas.bin", "model.*.bin"), "a binary model of Marian", "get its model.npz"),
    (("*.zip", "*.tar", "*.tar.gz", "*.tgz"), "an archive", "unpack it first"),
)


def explain(folder):
    """Returns what a folder of an unsupported format holds, and what to do, or None.

    Args:
        folder: path of the folder.
    """
    folder = pathlib.Path(folder)
    cache = folder / ".cache" / "huggingface" / "download"  # of hf download --local-dir
    for place in (folder, cache):
        for file in _found(place, _UNFINISHED):
            return f"{file.name} is the part of a file: start its download again, which resumes"
    for patterns, what, advice in _KINDS:
        for file in _found(folder, patterns):
            return f"{file.name} shows that it is {what}: {advice}"
    inner = [
        path.parent.name
        for name in ("config.json", "model.bin")
        for path in sorted(folder.glob(f"*/{name}"))
    ]
    if inner:
        return f"models are in its folders {', '.join(dict.fromkeys(inner))}: give one of them"
    return None


def _found(folder, patterns):
    return (file for pattern in patterns for file in sorted(folder.glob(pattern)))
