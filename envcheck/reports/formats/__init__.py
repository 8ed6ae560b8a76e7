"""Output formats, one module each; the file name is the format's name.

`envcheck.reports.render` describes what such a module defines. A module whose name begins with an underscore
is a helper of a format, not a format.
"""
