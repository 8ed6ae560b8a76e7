"""Gives torch 2.4 and NumPy 2 the names that DeepSpeed before 0.14.4 imports and never uses in a step."""

import logging
from typing import Any

from after_import import after_import


def names(api: Any) -> None:
    api.log = logging.getLogger("torch.distributed.elastic")
    api._get_socket_with_port = lambda: None


def size(numpy: Any) -> None:
    numpy.BUFSIZE = 8192


after_import("torch.distributed.elastic.agent.server.api", names)
after_import("numpy", size)
