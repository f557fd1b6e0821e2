"""Which tensors cross between host and GPU memory in a step: an audit that needs no GPU.

python tools/device_audit.py train --size=base --tokens=25000
python tools/device_audit.py decode --size=tiny --batch=32
python tools/device_audit.py saved_model --saved_model=export/1

TensorFlow's wheel for Linux has the GPU kernels registered, each with the arguments that it reads
or writes in host memory. Grappler puts functions, loops and conditions as operations into one
graph, as TensorFlow does before it places them; `audit` places these and follows each tensor from
the memory that it is written to, to the memory that it is read from. If they differ it is copied,
once for each direction; from the GPU to the host, the host then waits for the GPU. A copy of at
most 4 KiB counts as bookkeeping, others and unknown shapes as data. It ignores XLA and Grappler's
changes after placement.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import app, flags
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import kernels
from tensorflow.python.grappler import item, tf_optimizer

import t2t_keras as t2t
from t2t_keras import ops
from t2t_keras.data.word_piece import WordPieceTokenizer

SIZE = flags.DEFINE_enum("size", "tiny", ["tiny", "base"], "Config of the model.")
TOKENS = flags.DEFINE_integer("tokens", 25_000, "train: tokens of a batch, in rows of --length.")
LENGTH = flags.DEFINE_integer("length", 28, "Tokens of a sentence.")
BATCH = flags.DEFINE_integer("batch", 32, "decode: sentences.")
SAVED_MODEL = flags.DEFINE_string("saved_model", None, "saved_model: folder of an export.")

BOOKKEEPING = 4096  # bytes
UNKNOWN = 32  # the size of a dimension that is not known
_HAND_ON = {"Identity", "Enter", "Merge", "Switch", "Exit"}
"""Operations that hand their first input on; functions and loops lose its shape there."""
_kernels_of = functools.cache(kernels.get_registered_kernels_for_op)


class Copy(NamedTuple):
    """A tensor that is copied to "device" or "host", once or in each step of the loop `scope`.

    `kind` is "input" for data from outside, which has to cross once, else "bookkeeping" or "data".
    """

    kind: str
    to: str
    scope: str
    tensor: tf.Tensor
    bytes: int
    readers: set


def host_arguments(op):
    """Returns the arguments that an operation's GPU kernel has in host memory; None without one."""

    def fits(constraint):
        given, allowed = op.get_attr(constraint.name), constraint.allowed_values.list
        given = given if isinstance(given, list) else [given]
        values = {x.as_datatype_enum if isinstance(x, tf.DType) else x for x in given}
        return values <= {*allowed.type, *allowed.s}

    fitting = [
        (kernel.device_type == "GPU", kernel.priority, kernel.host_memory_arg)
        for kernel in _kernels_of(op.type).kernel
        if kernel.device_type in ("GPU", "DEFAULT") and not kernel.label  # DEFAULT: any device
        if all(map(fits, kernel.constraint))
    ]
    return max(fitting, key=lambda kernel: kernel[:2])[2] if fitting else None


def _memories(op, tensors, argument_defs, arguments):
    """Yields (tensor, "host" or "device") of inputs or outputs; arguments: None on the CPU."""
    names = []
    for argument in argument_defs:
        count = op.get_attr(argument.number_attr) if argument.number_attr else 1
        if argument.type_list_attr:
            count = len(op.get_attr(argument.type_list_attr))
        names += [argument.name] * count
    for name, tensor in zip(names, tensors, strict=True):
        on_host = arguments is None or name in arguments or tensor.dtype in (tf.string, tf.resource)
        yield tensor, "host" if on_host else "device"


def flatten(function):
    """Returns the operations that a concrete function runs, each after those that it reads.

    Functions, loops and conditions are replaced by their operations, and variables are made in the
    graph, so that their places and shapes are known.
    """
    graph, graph_def = function.graph, function.graph.as_graph_def(add_shapes=True)
    variables = {id(variable.handle): variable for variable in graph.variables}
    captured = {inner.op.name: variables.get(id(outer)) for outer, inner in graph.captures}
    for node in graph_def.node:
        if (variable := captured.get(node.name)) is not None:
            node.op = "VarHandleOp"
            node.attr["dtype"].type = variable.dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
    meta_graph = tf.compat.v1.MetaGraphDef(graph_def=graph_def)
    kept = meta_graph.collection_def["train_op"].node_list.value
    kept.extend(each.name for each in (*graph.outputs, *graph.control_outputs))
    options = {"min_graph_nodes": -1, "optimizers": ["function"]}
    config = config_pb2.ConfigProto(graph_options={"rewrite_options": options})
    meta_graph.graph_def.CopyFrom(tf_optimizer.OptimizeGraph(config, meta_graph))
    with tf.Graph().as_default() as flat:
        tf.import_graph_def(meta_graph.graph_def, name="")
    names = item.Item(meta_graph).IdentifyImportantOps(sort_topologically=True)
    return [flat.get_operation_by_name(name) for name in names]


def audit(function):
    """Returns a list of `Copy` for a concrete function whose arguments are in host memory.

    An operation is on the GPU if it has a kernel there for its types. Exceptions, all of
    TensorFlow's placer: a device that the graph names; operations on an iterator, and arguments,
    are on the CPU; `Shape` and others that read no elements are where their input is; constants for
    operations on the CPU are made there.
    """
    copies, loops, memories, inputs, shapes = {}, {}, {}, set(), {}
    for op in flatten(function):
        before = [*(tensor.op for tensor in op.inputs), *op.control_inputs]
        loop = max((loops.get(other, ()) for other in before), key=len, default=())
        loops[op] = loop[:-1] if op.type == "Exit" else loop
        if op.type == "Enter":
            loops[op] = *loop, op.get_attr("frame_name").decode()
        arguments = host_arguments(op)
        reader = f"{op.type}{' (without a GPU kernel)' * (arguments is None)}"
        measures = op.type in {"Shape", "ShapeN", "Size", "Rank"}
        if (
            "CPU" in op.device
            or op.type.startswith(("Iterator", "Placeholder"))
            or (measures and all(memories[tensor.name] == "host" for tensor in op.inputs))
        ):
            arguments = None
        for tensor, memory in _memories(op, op.inputs, op.op_def.input_arg, arguments):
            made_here = tensor.op.type == "Const" and arguments is None
            if memories.get(tensor.name, memory) == memory or made_here:
                continue
            shape = shapes[tensor.name]
            shape = shape.as_list() if shape.rank is not None else [BOOKKEEPING + 1]
            size = tensor.dtype.size * math.prod(UNKNOWN if n is None else n for n in shape)
            kind = "data" if size > BOOKKEEPING else "bookkeeping"
            kind, key = "input" if tensor.name in inputs else kind, (memory, "/".join(loop), tensor)
            copies.setdefault(key, Copy(kind, *key, size, set())).readers.add(reader)
        # A check of the batch hands it on by `Identity`, in the memory where it was.
        handed_on = op.type == "Identity" and op.inputs[0].name in inputs
        for tensor, memory in _memories(op, op.outputs, op.op_def.output_arg, arguments):
            memories[tensor.name] = memory
            shapes[tensor.name] = tensor.shape
            if tensor.shape.rank is None and op.type in _HAND_ON:
                shapes[tensor.name] = shapes[op.inputs[0].name]
            if op.type in ("Placeholder", "IteratorGetNext") or (handed_on and memory == "host"):
                inputs.add(tensor.name)
    return [*copies.values()]


def make_model(size, dtype=None, **changes):
    """Returns a `Transformer` of a config's name."""
    fields = {"vocab_size": {"tiny": 10_000, "base": 37_000}[size]} | changes
    return t2t.Transformer(getattr(t2t.TransformerConfig, size)(**fields), dtype=dtype)


def training_step(model, rows, length, packed=False, device="gpu"):
    """Returns a concrete function: the step that `fit` runs for each batch [rows, length]."""
    with ops.made_for(device):
        loss, metrics = t2t.LabelSmoothedCrossEntropy(0.1), [t2t.TokenAccuracy(), t2t.Perplexity()]
        model.compile(t2t.adam(model.config.model_dim), loss, weighted_metrics=metrics)
        model.optimizer.build(model.trainable_variables)
        names = ["ids", "segments", "positions"][: 3 if packed else 1]
        ids = np.ones([rows, length], np.int32)
        inputs = {f"{side}_{name}": ids for side in ("source", "target") for name in names}
        batches = tf.data.Dataset.from_tensors((inputs, ids, np.ones([rows, length], np.float32)))
        step = tf.function(lambda iterator: model.train_step(next(iterator)), autograph=False)
        return step.get_concrete_function(iter(batches))


def search(model, batch, length):
    """Returns the concrete function of a `Translator`'s search, from ids [batch, length]."""
    pieces = ["<pad>", "</s>", "<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += [f"w{i}" for i in range(model.config.vocab_size - len(pieces))]
    translator = t2t.Translator(model, WordPieceTokenizer("wordpiece", "\n".join(pieces).encode()))
    with ops.made_for("gpu"):
        function = tf.function(translator.search, autograph=False)
        return function.get_concrete_function(tf.TensorSpec([batch, length], tf.int32))


def main(arguments):
    """Prints the audits of one graph, or of all signatures of an export."""
    if arguments[-1] == "train":
        model, rows = make_model(SIZE.value, "mixed_bfloat16"), TOKENS.value // LENGTH.value
        functions = {"train": training_step(model, max(rows, 1), LENGTH.value)}
    elif arguments[-1] == "decode":
        functions = {"decode": search(make_model(SIZE.value), BATCH.value, LENGTH.value)}
    elif arguments[-1] == "saved_model" and SAVED_MODEL.value:
        loaded = tf.saved_model.load(SAVED_MODEL.value)  # it owns the variables
        functions = loaded.signatures
    else:
        raise app.UsageError("give train, decode, or saved_model with --saved_model=DIR")
    for name, function in functions.items():
        for c in sorted(audit(function), key=lambda copy: (copy.scope, copy.kind, -copy.bytes)):
            place = f"{name}, {f'each step of {c.scope}' if c.scope else 'once'}: {c.kind}"
            what = f"{c.tensor.dtype.name}{c.tensor.shape} {c.tensor.name}"
            print(f"{place} to {c.to}, {what} → {', '.join(sorted(c.readers))}")


if __name__ == "__main__":
    app.run(main)
