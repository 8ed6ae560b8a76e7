"""Tell torch's shared libraries and its symbols from those of others, by name."""

from __future__ import annotations

import re

from envcheck.core.patterns import pattern

TORCH_SYMBOL = re.compile(rb"_Z(?:T[ITVS]|GV)?N[KVRO]*(?:3c10|2at|5torch|6caffe2)|aoti_torch_|torch_[a-z]")
"""Names in torch's C++ namespaces (Itanium mangling), and the C functions of its stable ABI."""

TORCH_LIBRARY = pattern(r"lib(?:c10|torch)(?:_(?:cpu|cuda|hip|xpu|python|cuda_cu|cuda_cpp))?\.so")
