"""Short scripts that `matrix prove` runs beside releases, in the target's interpreter.

A script exits with 0 if what it tries works, and with 1, after one line that says how, if it fails. Anything
else is a fault of the script. Standard library and the libraries in question only.
"""
