"""The tests are a package, so that `tests/lib` can never be taken for the library `lib`."""
