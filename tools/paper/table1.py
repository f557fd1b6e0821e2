"""Table 1: complexity per layer, sequential operations, maximum path length; formula and measure.

python tools/paper/table1.py --quick --output_dir=DIR

Times are the fastest of several forward passes, of a batch of --batch sequences. Memory is the peak
of the allocator's own record in a traced run (RunMetadata.step_stats), weights and input not
counted. The exponents are fitted to the larger half of the sizes: for small sizes, the fixed cost
of a call dominates.
"""

import gc
import itertools

import shared
import matplotlib.figure
import numpy as np
from absl import flags, logging
from layer_types import TABLE_1, Sizes, evaluate
from measurement import fastest_time, fitted_exponent, peak_memory, trace_layer

from pipelines import app
from t2t_keras.errors import InputError

KERNEL = flags.DEFINE_integer("kernel", 3, "k of the convolutions.", lower_bound=2)
WINDOW = flags.DEFINE_integer("window", 32, "r of restricted self-attention.", lower_bound=1)
BATCH = flags.DEFINE_integer("batch", 8, "Sequences of a forward pass.", lower_bound=1)
TEXT = "Seconds for which each time is measured; 0: one pass; default: 0.5, with --quick 0.1."
SECONDS = flags.DEFINE_float("seconds", None, TEXT, lower_bound=0.0)
TEXT = "The greatest n; default: 4096, with --quick 1024."
LONGEST = flags.DEFINE_integer("longest", None, TEXT, lower_bound=64)
TEXT = "The greatest d; default: 2048, with --quick 512."
WIDEST = flags.DEFINE_integer("widest", None, TEXT, lower_bound=64)

FIXED_WIDTH = 64  # d, where n grows
FIXED_LENGTH = 128  # n, where d grows
SMALLEST = 32


def main():
    longest = LONGEST.value or (1_024 if shared.QUICK.value else 4_096)
    widest = WIDEST.value or (512 if shared.QUICK.value else 2_048)
    if longest < 4 * SMALLEST or widest < 4 * SMALLEST:
        raise InputError(
            f"--longest is {longest} and --widest is {widest}: give at least {4 * SMALLEST}."
        )
    growing = {
        "n": [_sizes(n, FIXED_WIDTH) for n in _powers(longest)],
        "d": [_sizes(FIXED_LENGTH, d) for d in _powers(widest)],
    }
    costs = {letter: measure(all_sizes) for letter, all_sizes in growing.items()}
    shared.save_picture(growth_figure(growing, costs), "table1")
    exponents = f"Exponents, over n at d = {FIXED_WIDTH}, over d at n = {FIXED_LENGTH}"
    parts = {
        "As the paper has it": formula_rows(growing["n"][-1]),
        exponents: exponent_rows(growing, costs),
        "How it was measured": __doc__.split("\n\n")[-1].replace("\n", " ").strip(),
    }
    for letter, all_sizes in growing.items():
        for which, unit in enumerate(("Milliseconds", "MiB")):
            rows = value_rows(letter, all_sizes, costs[letter], which)
            parts[f"{unit} over {letter}"] = rows
    title = "Table 1: complexity per layer, sequential operations, maximum path length"
    shared.save_tables("table1", title, parts)


def _powers(last):
    return [2**i for i in range(SMALLEST.bit_length() - 1, last.bit_length())]


def _sizes(n, d):
    return Sizes(n, d, KERNEL.value, min(WINDOW.value, n))


def measure(all_sizes):
    """Returns {name: array [2, sizes]}, milliseconds and MiB of each layer at each size."""
    seconds = SECONDS.value if SECONDS.value is not None else (0.1 if shared.QUICK.value else 0.5)
    costs = {}
    for row in TABLE_1:
        logging.info("Measuring %s", row.name)
        columns = []
        for sizes in all_sizes:
            traced = trace_layer(row.make(sizes), (BATCH.value, sizes.n, sizes.d))
            columns.append((1e3 * fastest_time(traced, seconds), peak_memory(traced) / 2**20))
            del traced
            gc.collect()  # graphs are cycles
        costs[row.name] = np.array(columns).T
    return costs


def formula_rows(sizes):
    """The paper's table, with the values of its formulas and the products counted."""
    place = f"… at n={sizes.n}, d={sizes.d}, k={sizes.k}, r={sizes.r}"
    return [
        {
            "Layer": row.name,
            "Complexity per layer": f"O({row.complexity})",
            "Sequential operations": f"O({row.sequential})",
            "Maximum path length": f"O({row.path})",
            place: float(evaluate(row.complexity, sizes)),
            "sequential": evaluate(row.sequential, sizes),
            "path": round(float(evaluate(row.path, sizes)), 1),
            "FLOPs of its products": float(row.flops(sizes)),
        }
        for row in TABLE_1
    ]


def exponent_rows(growing, costs):
    """Exponents of the FLOPs, the time and the memory, in n and in d."""
    rows = []
    for row in TABLE_1:
        cells = {"Layer": row.name, "Formula": row.complexity}
        for letter, all_sizes in growing.items():
            flops = [row.flops(sizes) for sizes in all_sizes]
            columns = flops, *costs[letter][row.name]
            for kind, values in zip(("FLOPs", "time", "memory"), columns, strict=True):
                exponent = fitted_exponent(_values(letter, all_sizes), values)
                cells[f"{kind}, {letter}"] = round(exponent, 2)
        rows.append(cells)
    return rows


def _values(letter, all_sizes):
    return [getattr(sizes, letter) for sizes in all_sizes]


def value_rows(letter, all_sizes, costs, which):
    """What was measured, a column for each size."""
    names = [f"{letter}={value}" for value in _values(letter, all_sizes)]
    return [
        {"Layer": layer}
        | {name: float(f"{x:.4g}") for name, x in zip(names, values[which], strict=True)}
        for layer, values in costs.items()
    ]


def growth_figure(growing, costs):
    """Time and memory over n and over d, log-log."""
    figure = matplotlib.figure.Figure(figsize=(15.5, 8.6), layout="constrained")
    axes = figure.subplots(2, 2)
    fixed = {"n": f"d = {FIXED_WIDTH}", "d": f"n = {FIXED_LENGTH}"}
    titles = "time in ms", "peak memory in MiB"
    for (which, title), (column, letter) in itertools.product(enumerate(titles), enumerate("nd")):
        axis, numbers = axes[which, column], _values(letter, growing[letter])
        for (name, values), marker in zip(costs[letter].items(), "os^vDXP*", strict=True):
            label = f"{name}  ({letter}^{fitted_exponent(numbers, values[which]):.2f})"
            axis.loglog(numbers, values[which], marker=marker, markersize=5, label=label)
        axis.set_xticks(numbers, [str(number) for number in numbers])
        axis.minorticks_off()
        xlabel = {"n": "n (length)", "d": "d (width)"}[letter]
        axis.set(xlabel=xlabel, title=f"{title}, {fixed[letter]}")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


if __name__ == "__main__":
    app.take("quick")
    app.require("output_dir")
    app.run(main)
