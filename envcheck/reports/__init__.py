"""What a report looks like: one file per format, the diff of two inventories and the explanation of a log.

May import everything below. It must not decide anything, and reads nothing: a format arranges a Report.
"""
