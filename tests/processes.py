"""Commands that tests run as processes of their own."""

import subprocess
import sys


def run_command(*command, code=0, **options):
    """Runs a command, which ends with an exit code; returns its `CompletedProcess`, of text."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == code, done.stdout[-5000:] + done.stderr
    return done


def run_python(*arguments, **options):
    return run_command(sys.executable, *arguments, **options)
