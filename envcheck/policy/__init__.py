"""The user's settings applied to findings: the gate's decision, lock drift and the manifest of an image.

May import core, rules, dependency_files and knowledge. It must not read files or know which command runs it.
`image_manifest` imports nothing, because every start of a container loads it.
"""
