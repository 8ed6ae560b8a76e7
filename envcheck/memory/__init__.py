"""What a training needs of memory: a model's architecture, the estimate, and the table that shows it.

May import core and reports. It must not read files or measure anything.
"""
