"""What several dependency formats share: lines of a requirements file, one requirement, places in TOML.

May import core and the values of dependency_files. It must not know the formats.
"""
