"""What the user's settings make of findings: the gate's decision, lock drift and the image manifest.

May import core, rules, dependency_files and knowledge. It must not read settings files itself or know which
command asked. image_manifest imports nothing, since every start of a container loads it.
"""
