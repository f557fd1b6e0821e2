"""What the course of the validations says of a run: that it no longer improves, or overfits."""


class Watch:
    """Finds that the validations of a run have not improved for a while. The run goes on.

    Args:
        log: `MetricsLog`; what earlier sessions wrote counts.
        name: scalar of a validation.
        mode: "max" or "min", which of its values is best.
        training: the same scalar as training reports it, of which less is better; where it fell
            while validation's rose, the run overfits. None: there is none to compare with.
        patience: validations without improvement after which it is said, and again after as many.

    Example:
        >>> watch = Watch(log, "validation_perplexity", "min", training="perplexity")
        >>> Validate(1000, evaluate, log, "validation_perplexity", "min", watches=[watch])
    """

    def __init__(self, log, name, mode, training=None, patience=4):
        self._log = log
        self._name = name
        self._best_of = {"max": max, "min": min}[mode]
        self._training = training
        self._patience = patience

    def message(self):
        """Returns what there is to say after the latest validation, or None."""
        results = self._log.values(self._name)
        if not results:
            return None
        step, best = self._best_of(results, key=lambda result: result[1])
        since = sum(later > step for later, _ in results)
        if not since or since % self._patience:
            return None
        last_step, last = results[-1]
        course = f"{self._name} has not been better for {since} validations than at step {step:,}"
        before, after = self._trained(step), self._trained(last_step)
        if last > best and before is not None and after < before:
            return (
                f"Overfitting: {course}; it rose from {best:.4g} to {last:.4g} while "
                f"{self._training} in training fell from {before:.4g} to {after:.4g}."
            )
        return f"Plateau: {course}, {best:.4g}; it is {last:.4g} now."

    def _trained(self, step):
        """Returns what training reported last at a step, or None."""
        values = self._log.values(self._training) if self._training else []
        return next((value for at, value in reversed(values) if at <= step), None)
