"""Output formats, one module each; the file name is the format's name.

`envcheck.reports.render` describes what such a module defines. A module with a leading underscore is a helper
of a format and no format itself.
"""
