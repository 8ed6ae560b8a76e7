"""The memory that a training needs: the weights, an estimate of the peak, and whether it fits a machine.

`architecture` counts a model's weights, with `architecture_table`, `tensors` and `vision_tower`. `estimate`
adds up a training's memory from `weights`, `parallelism` and `activations`. `options` finds the cheapest
change that fits, and `report` prints the result. `training` holds the settings that all of them share.

May import `core` and `reports`. It must not read files or measure anything: every number follows from a
configuration, and each formula names the source code that it was taken from.
"""
