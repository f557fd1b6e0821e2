"""Which tensors cross between host and GPU memory in a step: an audit that needs no GPU.

python tools/device_audit.py train --size=base --tokens=25000
python tools/device_audit.py decode --size=tiny --batch=32
python tools/device_audit.py saved_model --saved_model=export/1

TensorFlow's wheel for Linux has the GPU kernels registered, each with the arguments that it reads
or writes in host memory. This tool takes a graph made for a GPU, places every node as TensorFlow
does on a machine with one, and follows each tensor from the memory that it is written to, to the
memory that it is read from. A tensor that is written to one and read from the other is copied, once
for each direction; from the GPU to the host, the host then waits for the GPU. `place` has the
rules. A copy of at most 4 KiB counts as bookkeeping, others as data.

What it does not know: Grappler, which removes nodes after placement (and moves none), and XLA.
"""

import collections
import dataclasses
import functools
import inspect
import math
import types

import numpy as np
import tensorflow as tf
from absl import app, flags
from tensorflow.python.framework import function_def_to_graph, importer, kernels
from tensorflow.python.framework.func_graph import FuncGraph

import t2t_keras as t2t
from t2t_keras import ops

SIZE = flags.DEFINE_enum("size", "tiny", ["tiny", "base"], "Config of the model.")
VOCAB = flags.DEFINE_integer(
    "vocab", None, "Size of the vocabulary; default: 10,000 for tiny, 37,000 for base."
)
DTYPE = flags.DEFINE_string(
    "dtype", "mixed_bfloat16", "Keras dtype policy of `train`; `decode` always has float32."
)
TOKENS = flags.DEFINE_integer("tokens", 25_000, "train: tokens of a batch, in rows of --length.")
LENGTH = flags.DEFINE_integer("length", 28, "Tokens of a sentence, and steps of a search so far.")
BATCH = flags.DEFINE_integer("batch", 32, "decode, saved_model: sentences.")
BEAMS = flags.DEFINE_integer("beam_size", 4, "decode, saved_model: beam size.")
SAVED_MODEL = flags.DEFINE_string(
    "saved_model", None, "saved_model: folder of an export; required there, no default."
)

BOOKKEEPING = 4096
"""Bytes up to which a copy is bookkeeping."""

_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
_LOOPS = {"While", "StatelessWhile"}
_BRANCHES = {"If", "StatelessIf", "Case", "StatelessCase"}
_METADATA = {"Shape", "ShapeN", "Size", "Rank"}
_NO_TENSORS = {"NoOp"}
_ALWAYS_ON_HOST = (tf.string, tf.resource)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes assumed for dimensions that are unknown until a graph runs."""

    batch: int = 32
    steps: int = 28
    beams: int = 4

    def known(self, shape):
        """Returns a `tf.TensorShape` without unknown dimensions, or one of unknown rank.

        The first dimension is the batch; another one counts steps, and in a KV cache, the only
        state of four dimensions, steps · beams.
        """
        if shape.rank is None:
            return shape
        others = self.steps * (self.beams if shape.rank == 4 else 1)
        return tf.TensorShape(
            [(others if i else self.batch) if n is None else n for i, n in enumerate(shape)]
        )

    def carried(self, shape, first):
        """Returns the shape of a loop's variable, which is `first` at the beginning."""
        if shape.rank is None or first.rank != shape.rank:
            return shape
        old = [
            n if n is not None else m or None for n, m in zip(shape, first, strict=True)
        ]  # 0: it grows
        return self.known(tf.TensorShape(old))


@dataclasses.dataclass(eq=False)
class Value:
    """A tensor, and where it is written.

    Attributes:
        producer: str, type and name of the operation.
        on_gpu: bool, whether the operation is placed on the GPU.
        memory: "device" or "host".
        dtype, shape: of the tensor.
        is_input: bool, whether it is data from outside, which has to cross once.
        is_constant: bool; for operations on the CPU TensorFlow makes constants there.
        variable: type and shape of the variable that it is the handle of, or None.
    """

    producer: str
    on_gpu: bool
    memory: str
    dtype: tf.DType
    shape: tf.TensorShape
    is_input: bool = False
    is_constant: bool = False
    variable: tuple | None = None

    @property
    def has_shape(self):
        """Whether it has a shape; handles of resources and variants have none that counts."""
        return self.shape.rank is not None and self.dtype not in (tf.resource, tf.variant)

    @property
    def bytes(self):
        """Its size; one of unknown shape counts as data."""
        return self.dtype.size * math.prod(self.shape) if self.has_shape else BOOKKEEPING + 1


@dataclasses.dataclass
class Copy:
    """A tensor that is copied; `scope` is the loop that copies it in each step, or ""."""

    value: Value
    to: str
    scope: str
    readers: list

    @property
    def kind(self):
        """One of "input", "bookkeeping", "data"."""
        if self.value.is_input:
            return "input"
        return "bookkeeping" if self.value.bytes <= BOOKKEEPING else "data"


# Kernels ------------------------------------------------------------------------------------------


@functools.cache
def _registered(op_type):
    """Returns [(device type, {attribute: values}, host arguments, priority)] of an operation."""
    kernels_found = []
    for kernel in kernels.get_registered_kernels_for_op(op_type).kernel:
        values = {c.name: c.allowed_values.list for c in kernel.constraint}
        allowed = {name: {*found.type, *found.s} for name, found in values.items()}
        if not kernel.label:
            arguments = frozenset(kernel.host_memory_arg)
            kernels_found.append((kernel.device_type, allowed, arguments, kernel.priority))
    return kernels_found


def host_arguments(op_type, attribute):
    """Returns the arguments that a GPU kernel has in host memory; None if there is no kernel.

    Args:
        op_type: str.
        attribute: function of an attribute's name, to its values, types as numbers.
    """
    for device in ("GPU", "DEFAULT"):  # kernels for all devices count where there is no other
        fitting = [
            (priority, arguments)
            for kind, allowed, arguments, priority in _registered(op_type)
            if kind == device
            and all(set(attribute(name)) <= values for name, values in allowed.items())
        ]
        if fitting:
            return max(fitting, key=lambda pair: pair[0])[1]
    return None


def _attribute(op, name):
    found = op.get_attr(name)
    found = found if isinstance(found, (list, tuple)) else [found]
    return [value.as_datatype_enum if isinstance(value, tf.DType) else value for value in found]


def _argument_names(op, argument_defs):
    """Returns the name of the argument that each input or output belongs to."""
    names = []
    for argument in argument_defs:
        count = 1
        if argument.number_attr:
            count = op.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            count = len(op.get_attr(argument.type_list_attr))
        names += [argument.name] * count
    return names


@functools.cache
def carried_memory(dtype):
    """Returns where loops and conditions keep a tensor: what `Merge` does with its type."""
    arguments = host_arguments("Merge", lambda _: [dtype.as_datatype_enum])
    on_host = arguments is None or "output" in arguments or dtype in _ALWAYS_ON_HOST
    return "host" if on_host else "device"


# Placement ----------------------------------------------------------------------------------------


class Audit:
    """The copies in one run of a graph, and the operations that have no GPU kernel.

    Args:
        sizes: `Sizes`.

    Attributes:
        copies: list of `Copy`.
        on_cpu: Counter of (scope, operation type, types of its inputs or outputs).
        placed: Counter of (scope, operation type).
    """

    def __init__(self, sizes=None):
        self.sizes = sizes or Sizes()
        self.on_cpu = collections.Counter()
        self.placed = collections.Counter()
        self._copies = {}

    @property
    def copies(self):
        return list(self._copies.values())

    def of(self, kind, scope=None):
        """Returns the copies of a kind, in one scope or in all."""
        return [c for c in self.copies if c.kind == kind and scope in (None, c.scope)]

    @property
    def scopes(self):
        return sorted({scope for scope, _ in self.placed})

    def walk(self, graph, arguments, scope=""):
        """Places the operations of a `FuncGraph`.

        Args:
            graph: `FuncGraph`.
            arguments: list of `Value`, of its inputs.
            scope: str.

        Returns:
            List of `Value`, of its outputs.
        """
        values = {id(tensor): value for tensor, value in zip(graph.inputs, arguments, strict=True)}
        for op in _in_order(graph, _used(graph)):
            if op.outputs and all(id(output) in values for output in op.outputs):
                continue  # an argument
            inputs = [values[id(tensor)] for tensor in op.inputs]
            outputs = self._run(op, inputs, scope, graph)
            values |= {id(t): v for t, v in zip(op.outputs, outputs, strict=True)}
        return [values[id(tensor)] for tensor in graph.outputs]

    def _run(self, op, inputs, scope, graph):
        if op.type in _LOOPS:
            return self._loop(op, inputs, scope, graph)
        if op.type in _BRANCHES:
            return self._branch(op, inputs, scope, graph)
        if op.type in _CALLS or _function(op.type, graph) is not None:
            name = op.get_attr("f").name if op.type in _CALLS else op.type
            return self._call(name, inputs, scope, graph)
        return self._place(op, inputs, scope)

    def _place(self, op, inputs, scope):
        """Places one operation: on the GPU if it has a kernel there for its types.

        Exceptions, all of TensorFlow's placer: a device that the graph names; an operation that is
        colocated with another; operations on an iterator are where the iterator is; `Shape` and
        others that read no elements are where their input is.
        """
        arguments = host_arguments(op.type, functools.partial(_attribute, op))
        dtypes = tuple(t.dtype.name for t in (*op.inputs, *op.outputs))
        on_gpu = arguments is not None
        if not on_gpu and op.type not in _NO_TENSORS:
            self.on_cpu[scope, op.type, dtypes] += 1
        if "CPU" in op.device or op.type.startswith("Iterator"):
            on_gpu = False
        if op.type in _METADATA and not any(value.on_gpu for value in inputs):
            on_gpu = False
        self.placed[scope, op.type] += 1
        names = _argument_names(op, op.op_def.input_arg)
        for value, name, tensor in zip(inputs, names, op.inputs, strict=True):
            if on_gpu or not value.is_constant:
                self.read(value, _memory(on_gpu, arguments, name, tensor), scope, op)
        names = _argument_names(op, op.op_def.output_arg)
        # A check of the batch hands it on by `Identity`, in the memory where it was.
        hands_on = op.type == "Identity" and inputs[0].is_input and inputs[0].memory == "host"
        return [
            self._value(
                op,
                tensor,
                on_gpu,
                _memory(on_gpu, arguments, name, tensor),
                is_input=hands_on or op.type.startswith("IteratorGetNext"),
                is_constant=op.type == "Const",
            )
            for tensor, name in zip(op.outputs, names, strict=True)
        ]

    def _value(self, op, tensor, on_gpu, memory, **kwargs):
        shape = self.sizes.known(tensor.shape)
        return Value(f"{op.type} {op.name}", on_gpu, memory, tensor.dtype, shape, **kwargs)

    def read(self, value, memory, scope, op):
        """Notes that an operation reads a value from "device" or "host" memory."""
        if value.memory == memory:
            return
        key = id(value), memory, scope
        if key not in self._copies:
            self._copies[key] = Copy(value, memory, scope, [])
        self._copies[key].readers.append(op.type)

    # Functions. TensorFlow puts their nodes into the graph that calls them, before it places them.

    def _call(self, name, inputs, scope, graph):
        return self.walk(_body(name, graph, inputs), inputs, scope)

    def _carry(self, op, values, shapes, scope):
        """Returns the values of a loop or condition, which are kept where `Merge` keeps them."""
        carried = []
        for value, shape in zip(values, shapes, strict=True):
            memory = carried_memory(value.dtype)
            self.read(value, memory, scope, op)
            carried.append(dataclasses.replace(value, memory=memory, shape=shape, on_gpu=True))
        return carried

    def _loop(self, op, inputs, scope, graph):
        body, inside = op.get_attr("body").name, f"{scope}/{op.name}".strip("/")
        shapes = [
            self.sizes.carried(output.shape, value.shape)
            for output, value in zip(op.outputs, inputs, strict=True)
        ]
        variables = self._carry(op, inputs, shapes, scope)
        for value in variables:
            value.is_constant = value.is_input = False
        [goes_on] = self._call(op.get_attr("cond").name, variables, inside, graph)
        self.read(goes_on, "host", inside, op)
        results = self._call(body, variables, inside, graph)
        self._carry(op, results, shapes, inside)
        return variables

    def _branch(self, op, inputs, scope, graph):
        self.read(inputs[0], "host", scope, op)
        names = ["then_branch", "else_branch"]
        branches = [op.get_attr(n) for n in names] if "If" in op.type else op.get_attr("branches")
        if "CPU" in op.device:  # TensorFlow keeps what it switches and merges there, too
            for value in inputs[1:]:
                self.read(value, "host", scope, op)
            for branch in branches:
                self._call(branch.name, inputs[1:], scope, graph)
            return [self._value(op, tensor, False, "host") for tensor in op.outputs]
        shapes = [value.shape for value in inputs[1:]]
        arguments = self._carry(op, inputs[1:], shapes, scope)
        for branch in branches:
            results = self._call(branch.name, arguments, scope, graph)
            self._carry(op, results, [value.shape for value in results], scope)
        return [
            self._value(op, tensor, True, carried_memory(tensor.dtype)) for tensor in op.outputs
        ]


def _memory(on_gpu, arguments, name, tensor):
    on_host = not on_gpu or name in arguments or tensor.dtype in _ALWAYS_ON_HOST
    return "host" if on_host else "device"


def _used(graph):
    """Returns the operations of a graph that TensorFlow runs, a set."""
    used = set()
    stack = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    stack += [op for op in graph.get_operations() if op.op_def.is_stateful]
    while stack:
        op = stack.pop()
        if op not in used:
            used.add(op)
            stack += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return used


def _in_order(graph, operations):
    """Yields some operations of a graph, each after those whose outputs it reads."""
    seen = set()
    for op in graph.get_operations():
        if op not in operations:
            continue
        stack = [op]
        while stack:
            top = stack[-1]
            missing = [t.op for t in top.inputs if id(t.op) not in seen]
            if missing:
                stack += missing
                continue
            stack.pop()
            if id(top) not in seen:
                seen.add(id(top))
                yield top


def _function(name, graph):
    """Returns the definition of a function, or None."""
    while graph is not None:
        found = graph._get_function(name)
        if found is not None:
            return found.cached_definition
        graph = getattr(graph, "outer_graph", None)
    with tf.init_scope():
        return function_def_to_graph.get_function_def(name, None)


def _body(name, graph, arguments):
    """Returns the `FuncGraph` of a function that is called with some values.

    Shapes are inferred anew, from those of the values and of the variables.
    """
    definition = _function(name, graph)
    shapes = [value.shape if value.has_shape else None for value in arguments]
    graph_def, names = function_def_to_graph.function_def_to_graph_def(definition)
    shaped = _graph(definition, names, graph_def, arguments, shapes)
    return shaped or _graph(definition, names, graph_def, arguments, [None] * len(shapes))


def _graph(definition, names, graph_def, arguments, shapes):
    """Returns the `FuncGraph` of a `GraphDef`, or None if these shapes contradict it."""
    inputs = [argument.name for argument in definition.signature.input_arg]
    for node in graph_def.node:
        if node.name not in inputs:
            continue
        value, shape = (x[inputs.index(node.name)] for x in (arguments, shapes))
        node.attr.pop("shape", None)
        if value.variable is not None:  # only this operation tells the readers of a variable
            node.op = "VarHandleOp"
            node.attr["dtype"].type = value.variable[0].as_datatype_enum
            node.attr["shape"].shape.CopyFrom(value.variable[1].as_proto())
        elif shape is not None:
            node.attr["shape"].shape.CopyFrom(shape.as_proto())
    graph = FuncGraph(definition.signature.name)
    with graph.as_default():
        try:
            importer.import_graph_def_for_function(graph_def, name="")
        except ValueError:
            return None
    graph.inputs = [graph.get_tensor_by_name(names[name]) for name in inputs]
    outputs = [definition.ret[output.name] for output in definition.signature.output_arg]
    graph.outputs = [graph.get_tensor_by_name(names[name]) for name in outputs]
    graph.control_outputs = [
        graph.get_operation_by_name(definition.control_ret[name])
        for name in definition.signature.control_output
    ]
    return graph


def audit(function, sizes=None):
    """Returns the `Audit` of a concrete function whose arguments are in host memory.

    Variables are where their operations are: on the GPU, for every type that has a kernel there.
    """
    found, graph = Audit(sizes), function.graph
    variables = {id(variable.handle): variable for variable in graph.variables}
    captured = {id(inside): variables.get(id(outside)) for outside, inside in graph.captures}
    arguments = []
    for tensor in graph.inputs:
        shape, variable = found.sizes.known(tensor.shape), captured.get(id(tensor))
        value = Value(f"argument {tensor.name}", False, "host", tensor.dtype, shape, True)
        if variable is not None:
            value.variable = variable.dtype, variable.shape
        arguments.append(value)
    found.walk(graph, arguments)
    return found


# Graphs -------------------------------------------------------------------------------------------


_INPUTS = {False: ["ids"], True: ["ids", "segments", "positions"]}


def make_model(size, vocab=None, dtype=None, **changes):
    """Returns a `Transformer` of a config's name."""
    config = getattr(t2t.TransformerConfig, size)
    vocab = vocab or {"tiny": 10_000, "base": 37_000}[size]
    return t2t.Transformer(config(vocab_size=vocab, **changes), dtype=dtype)


def training_step(model, rows, length, packed=False, device="gpu"):
    """Returns the concrete function that `fit` runs once for each batch [rows, length]."""
    with ops.made_for(device):
        model.compile(
            t2t.adam(model.config.model_dim),
            t2t.LabelSmoothedCrossEntropy(0.1),
            weighted_metrics=[t2t.TokenAccuracy(), t2t.Perplexity()],
        )
        ids = np.ones([rows, length], np.int32)
        names = [f"{side}_{name}" for side in ("source", "target") for name in _INPUTS[packed]]
        batch = dict.fromkeys(names, ids), ids, np.ones([rows, length], np.float32)
        iterator = iter(tf.data.Dataset.from_tensors(batch))
        model.make_train_function()
        fit_step = inspect.unwrap(model.train_function)
        [step] = [  # Keras makes it a local variable of the function that `fit` calls
            cell.cell_contents
            for name, cell in zip(
                fit_step.__code__.co_freevars,
                fit_step.__closure__,
                strict=True,
            )
            if name == "multi_step_on_iterator"
        ]
        return step.get_concrete_function(iterator)


def search(model, batch, length, beam_size=4):
    """Returns the concrete function of a `Translator`'s search, from ids [batch, length]."""
    translator = _TranslatorOfIds(model, beam_size)
    with ops.made_for("gpu"):
        return tf.function(translator.search, autograph=False).get_concrete_function(
            tf.TensorSpec([batch, length], tf.int32)
        )


class _TranslatorOfIds(t2t.Translator):
    """A translator without a tokenizer, whose outputs are limited by the model alone."""

    targets = types.SimpleNamespace(limit=2**31 - 1)

    def __init__(self, model, beam_size):
        tokenizer = types.SimpleNamespace(bos_id=3, eos_id=1, vocab_size=model.config.vocab_size)
        tokenizer.target = tokenizer
        super().__init__(model, tokenizer, beam_size=beam_size)


# Report -------------------------------------------------------------------------------------------


def _size(count):
    return f"{count / 2**20:,.1f} MiB" if count >= 2**20 else f"{count:,} B"


def report(found, title):
    """Prints an `Audit`."""
    for scope in found.scopes:
        print(f"\n{title}, {f'each step of {scope}' if scope else 'once'}")
        nodes = sum(count for (where, _), count in found.placed.items() if where == scope)
        print(f"  {nodes} operations")
        for kind in ("data", "bookkeeping", "input"):
            copies = sorted(found.of(kind, scope), key=lambda copy: -copy.value.bytes)
            total = sum(copy.value.bytes for copy in copies)
            print(f"  {kind}: {len(copies)} copies, {_size(total)}")
            for copy in copies:
                value, readers = copy.value, ", ".join(sorted(set(copy.readers)))
                shape = list(value.shape) if value.has_shape else "[unknown]"
                print(
                    f"    to {copy.to:6} {value.dtype.name}{shape} {_size(value.bytes)}"
                    f"  {value.producer} → {readers}"
                )
        for (where, kind, dtypes), count in sorted(found.on_cpu.items()):
            if where == scope and "string" not in dtypes:
                print(f"  no GPU kernel: {count} × {kind} of {', '.join(dtypes)}")


def main(arguments):
    """Prints the audit of one graph."""
    kind = arguments[1] if len(arguments) == 2 else None
    sizes = Sizes(BATCH.value, LENGTH.value, BEAMS.value)
    if kind == "train":
        rows = max(TOKENS.value // LENGTH.value, 1)
        model = make_model(SIZE.value, VOCAB.value, DTYPE.value)
        report(audit(training_step(model, rows, LENGTH.value), sizes), f"train {SIZE.value}")
    elif kind == "decode":
        model = make_model(SIZE.value, VOCAB.value)
        function = search(model, BATCH.value, LENGTH.value, BEAMS.value)
        report(audit(function, sizes), f"decode {SIZE.value}")
    elif kind == "saved_model" and SAVED_MODEL.value:
        loaded = tf.saved_model.load(SAVED_MODEL.value)  # it owns the variables
        for name, function in loaded.signatures.items():
            report(audit(function, sizes), name)
    else:
        raise app.UsageError("give train, decode, or saved_model with --saved_model=DIR")


if __name__ == "__main__":
    app.run(main)
