"""Tests of the library: one file for each module, further files where a module needs more room."""
