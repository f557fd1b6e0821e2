"""Commands in forked processes, for the tests."""
