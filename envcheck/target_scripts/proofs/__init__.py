"""Modules that programs of proofs import; they run in the interpreter that `matrix prove` is given.

Standard library and the libraries in question only, in the releases that the rules are about.
"""
