"""The use cases, a module or package for each command: read at the edge, judge in the core, return values.

`examine` is the flow that most commands share: read, derive, judge, report. The use cases may import every
package below. They must not print, parse arguments or know how output is shown.
"""
