"""The binaries: prepare, train, average, evaluate, translate, export."""
