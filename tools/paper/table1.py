"""Table 1: complexity per layer, sequential operations, maximum path length; formula and measure.

python tools/paper/table1.py --quick --output_dir=DIR

Times are the fastest of several forward passes, of a batch of --batch sequences. Memory is the peak
of the allocator's own record in a traced run (RunMetadata.step_stats), weights and input not
counted. The exponents are fitted to the larger half of the sizes: for small sizes, the fixed cost
of a call dominates.
"""

import gc

import matplotlib.figure
import numpy as np
from report import QUICK, save_picture, save_tables
from absl import flags, logging
from layer_types import TABLE_1, Sizes
from measurement import (
    fastest_time,
    fitted_exponent,
    peak_memory,
    trace_layer,
)

from pipelines import app
from t2t_keras.errors import InputError

KERNEL = flags.DEFINE_integer("kernel", 3, "k of the convolutions.", lower_bound=2)
WINDOW = flags.DEFINE_integer("window", 32, "r of restricted self-attention.", lower_bound=1)
BATCH = flags.DEFINE_integer("batch", 8, "Sequences of a forward pass.", lower_bound=1)
SECONDS = flags.DEFINE_float(
    "seconds",
    None,
    "Seconds for which each time is measured; 0: one pass; default: 0.5, with --quick 0.1.",
    lower_bound=0.0,
)
LONGEST = flags.DEFINE_integer(
    "longest", None, "The greatest n; default: 4096, with --quick 1024.", lower_bound=64
)
WIDEST = flags.DEFINE_integer(
    "widest", None, "The greatest d; default: 2048, with --quick 512.", lower_bound=64
)

FIXED_WIDTH = 64  # d, where n grows
FIXED_LENGTH = 128  # n, where d grows
SMALLEST = 32


def main():
    longest = LONGEST.value or (1_024 if QUICK.value else 4_096)
    widest = WIDEST.value or (512 if QUICK.value else 2_048)
    if longest < 4 * SMALLEST or widest < 4 * SMALLEST:
        raise InputError(
            f"--longest is {longest} and --widest is {widest}: give at least {4 * SMALLEST}."
        )
    lengths, widths = _powers(longest), _powers(widest)
    over_n = measure(TABLE_1, [_sizes(n, FIXED_WIDTH) for n in lengths])
    over_d = measure(TABLE_1, [_sizes(FIXED_LENGTH, d) for d in widths])
    save_picture(growth_figure(lengths, over_n, widths, over_d), "table1")
    save_tables(
        "table1",
        "Table 1: complexity per layer, sequential operations, maximum path length",
        {
            "As the paper has it": formula_rows(_sizes(lengths[-1], FIXED_WIDTH)),
            f"Exponents, over n at d = {FIXED_WIDTH}, over d at n = {FIXED_LENGTH}": (
                exponent_rows(lengths, over_n, widths, over_d)
            ),
            "How it was measured": __doc__.split("\n\n")[-1].replace("\n", " ").strip(),
            "Milliseconds over n": value_rows("n", lengths, over_n, 0, 1e3),
            "MiB over n": value_rows("n", lengths, over_n, 1, 2**-20),
            "Milliseconds over d": value_rows("d", widths, over_d, 0, 1e3),
            "MiB over d": value_rows("d", widths, over_d, 1, 2**-20),
        },
    )


def _powers(last):
    return [2**i for i in range(SMALLEST.bit_length() - 1, last.bit_length())]


def _sizes(n, d):
    return Sizes(n, d, KERNEL.value, WINDOW.value)


def measure(rows, all_sizes):
    """Returns {name: array [2, sizes]}, seconds and bytes of each layer at each size."""
    found = {}
    for row in rows:
        logging.info("Measuring %s", row.name)
        columns = [_measure(row, sizes) for sizes in all_sizes]
        found[row.name] = np.array(columns).T
    return found


def _measure(row, sizes):
    traced = trace_layer(row.make(sizes), (BATCH.value, sizes.n, sizes.d))
    seconds = SECONDS.value if SECONDS.value is not None else (0.1 if QUICK.value else 0.5)
    result = fastest_time(traced, seconds), peak_memory(traced)
    del traced
    gc.collect()  # graphs are cycles
    return result


def formula_rows(sizes):
    """The paper's table, with the values of its formulas and the products counted."""
    return [
        {
            "Layer": row.name,
            "Complexity per layer": f"O({row.complexity})",
            "Sequential operations": f"O({row.sequential})",
            "Maximum path length": f"O({row.path})",
            f"… at n={sizes.n}, d={sizes.d}, k={sizes.k}, r={sizes.r}": float(
                row.operations(sizes)
            ),
            "sequential": row.steps(sizes),
            "path": round(float(row.distance(sizes)), 1),
            "FLOPs of its products": float(row.flops(sizes)),
        }
        for row in TABLE_1
    ]


def exponent_rows(lengths, over_n, widths, over_d):
    """Exponents of the FLOPs, the time and the memory, in n and in d."""
    rows = []
    for row in TABLE_1:
        of_n = [row.flops(_sizes(n, FIXED_WIDTH)) for n in lengths]
        of_d = [row.flops(_sizes(FIXED_LENGTH, d)) for d in widths]
        exponents = {
            "FLOPs, n": (lengths, of_n),
            "time, n": (lengths, over_n[row.name][0]),
            "memory, n": (lengths, over_n[row.name][1]),
            "FLOPs, d": (widths, of_d),
            "time, d": (widths, over_d[row.name][0]),
            "memory, d": (widths, over_d[row.name][1]),
        }
        found = {name: round(fitted_exponent(*pair), 2) for name, pair in exponents.items()}
        rows.append({"Layer": row.name, "Formula": row.complexity} | found)
    return rows


def value_rows(name, sizes, found, which, scale):
    """What was measured, a column for each size."""
    return [
        {"Layer": layer} | _columns(name, sizes, values[which] * scale)
        for layer, values in found.items()
    ]


def _columns(name, sizes, values):
    pairs = zip(sizes, values.tolist(), strict=True)
    return {f"{name}={size}": float(f"{value:.4g}") for size, value in pairs}


def growth_figure(lengths, over_n, widths, over_d):
    """Time and memory over n and over d, log-log."""
    figure = matplotlib.figure.Figure(figsize=(15.5, 8.6), layout="constrained")
    axes = figure.subplots(2, 2)
    panels = (
        (axes[0, 0], "n", lengths, over_n, 0, 1e3, f"time in ms, d = {FIXED_WIDTH}"),
        (axes[0, 1], "d", widths, over_d, 0, 1e3, f"time in ms, n = {FIXED_LENGTH}"),
        (axes[1, 0], "n", lengths, over_n, 1, 2**-20, f"peak memory in MiB, d = {FIXED_WIDTH}"),
        (axes[1, 1], "d", widths, over_d, 1, 2**-20, f"peak memory in MiB, n = {FIXED_LENGTH}"),
    )
    for axis, size, sizes, found, which, scale, title in panels:
        for (name, values), marker in zip(found.items(), "os^vDXP*", strict=True):
            exponent = fitted_exponent(sizes, values[which])
            label = f"{name}  ({size}^{exponent:.2f})"
            axis.loglog(sizes, values[which] * scale, marker=marker, markersize=5, label=label)
        axis.set_xlabel(f"{size} ({'length' if size == 'n' else 'width'})")
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
        axis.set_title(title)
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


if __name__ == "__main__":
    app.take("quick")
    app.require("output_dir")
    app.run(main)
