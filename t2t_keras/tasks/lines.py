"""Many lines through a function of batches: sorted for speed, given back in order."""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor


def in_order_of_length(function, lines, batch_size=64, window=64, at_once=1):
    """Applies a function to batches of lines of like length.

    Padding and idle beams cost time wherever short and long sentences share a batch, so that
    each window of lines is sorted first; its results come out in the order of its lines.

    Several batches side by side, each with one core, use a machine's cores better than one batch
    whose operations are shared out between them. TensorFlow must be told so before it does
    anything else: `tf.config.threading.set_intra_op_parallelism_threads(1)`.

    Args:
        function: function of a list of str, to a sequence of one result for each; called from
            several threads if `at_once` is more than 1.
        lines: iterable of str, read a window at a time.
        batch_size: lines of a batch.
        window: batches that are sorted together.
        at_once: batches that are worked on side by side, each in a thread of its own. A window of
            fewer lines than they could take is shared out evenly between them.

    Yields:
        One result for each line, in the order of the lines.

    Example:
        >>> for translation in in_order_of_length(translator, open("text.en")):
        ...     print(translation)
    """
    lines = iter(lines)
    with ThreadPoolExecutor(at_once) as pool:
        while chunk := list(itertools.islice(lines, batch_size * window)):
            # Longest first: what needs too much memory fails at once.
            order = sorted(range(len(chunk)), key=lambda i: -len(chunk[i]))
            size = min(batch_size, math.ceil(len(chunk) / at_once))
            batches = [order[start : start + size] for start in range(0, len(chunk), size)]
            found = (map if at_once == 1 else pool.map)(
                function, [[chunk[i] for i in places] for places in batches]
            )
            results = [None] * len(chunk)
            for places, batch in zip(batches, found, strict=True):
                for place, result in zip(places, batch, strict=True):
                    results[place] = result
            yield from results
