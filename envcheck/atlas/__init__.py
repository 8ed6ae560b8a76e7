"""Read the published files of releases, and say which releases of two packages cannot be used together.

Every release of the fine-tuning stack is read once: what its metadata requires, which names and keywords
of other packages its code uses when it is imported, what it offers to others, and what its binaries were
compiled for. What one release asks for and another lacks becomes a row of `compat/atlas/`.
`commands/harvest.py` fetches the files and writes the rows; `knowledge/` reads them.

How code is read: `python_file` turns one file into a `summary`, cached by the file's content.
`release_modules` finds the files of a release, and `predicates` turns the guards in them into `conditions`.
`offers` returns what a release has, `demands` what its `entries` use of other packages when they are
imported, `entry_calls` what runs when they are called, and `overriding` which methods its classes replace.
`reader` holds all releases of a package; `missing_names`, `import_guards`, `call_guards`, `keywords` and
`overrides` compare two packages and return `gaps`.

For curators only: no command that judges an environment imports this package. Pure: it takes bytes and
reads no file.

May import knowledge, rules and core. It must not know where the files come from.
"""
