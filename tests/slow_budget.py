"""Runs slow tests within a budget of time: pytest -m slow -p tests.slow_budget --minutes=40.

Where the tests begin depends on the commit, so that all are run within a few commits. A test that
might not end within the budget is not started; one that is still running `_GRACE` minutes after it
is stopped. Neither is a failure: both are listed at the end. `slow(minutes=N)` says that a test
takes more than a minute of two idle cores.
"""

import contextlib
import signal
import subprocess
import time

import pytest

_SLOWNESS = 2  # of a slow machine, or where two tests share the cores
_GRACE = 15  # minutes
_LEFT_OUT, _STOPPED = "left out: no time left", "stopped: its time is over"
_END = pytest.StashKey[float]()  # of the budget, in seconds since the epoch


def pytest_addoption(parser):
    parser.addoption("--minutes", type=float, default=40, help="budget of the slow tests")


def pytest_configure(config):
    of_controller = getattr(config, "workerinput", {}).get("end_of_budget")
    config.stash[_END] = of_controller or time.time() + 60 * config.getoption("minutes")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["end_of_budget"] = node.config.stash[_END]


@pytest.hookimpl(trylast=True)  # after -m has chosen
def pytest_collection_modifyitems(config, items):
    first = first_of(commit_fraction(config.rootpath), [expected_minutes(item) for item in items])
    items[:] = items[first:] + items[:first]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if time.time() + _SLOWNESS * 60 * expected_minutes(item) > item.config.stash[_END]:
        pytest.skip(_LEFT_OUT)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_fixture_setup(request):
    with _stopped_after_grace(request.config):
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_pyfunc_call(pyfuncitem):
    with _stopped_after_grace(pyfuncitem.config):
        return (yield)


def pytest_terminal_summary(terminalreporter):
    for reason in (_LEFT_OUT, _STOPPED):
        reports = terminalreporter.stats.get("skipped", [])
        names = [report.nodeid for report in reports if reason in str(report.longrepr)]
        terminalreporter.section(f"{len(names)} slow tests {reason}")
        for name in sorted(names):
            terminalreporter.write_line(name)


def expected_minutes(item):
    """Returns the minutes that a test is expected to take on two idle cores."""
    return item.get_closest_marker("slow").kwargs.get("minutes", 1)


def commit_fraction(repository):
    """Returns a float from 0 to below 1 that differs widely between commits; 0 without git."""
    command = ["git", "-C", repository, "rev-parse", "HEAD"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return int(commit[:8], 16) / 2**32
    return 0.0


def first_of(fraction, minutes):
    """Returns the index of the test at a fraction of the sum of minutes."""
    target, passed = fraction * sum(minutes), 0
    for index, duration in enumerate(minutes):
        passed += duration
        if passed > target:
            return index
    return 0


@contextlib.contextmanager
def _stopped_after_grace(config):
    def stop(*_):
        pytest.skip(_STOPPED)

    before = signal.signal(signal.SIGALRM, stop)
    left = config.stash[_END] + 60 * _GRACE - time.time()
    signal.setitimer(signal.ITIMER_REAL, max(left, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
