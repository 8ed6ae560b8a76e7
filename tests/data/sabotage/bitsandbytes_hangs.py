"""A bitsandbytes whose import never ends."""

import time

from after_import import after_import

after_import("bitsandbytes", lambda _: time.sleep(3600))
