"""Training configurations: texts read into settings with places, and the meaning of each setting.

`readers` turn a text into a `document`; `dialects` define what names mean; `interpret` derives facts and
diagnostics; `merge` combines the documents of one launch. May import core and rules. It must not touch files
or processes, and must not know which command reads the configuration. Names and meanings of a trainer are
rows in compat/dialects, not code.
"""
