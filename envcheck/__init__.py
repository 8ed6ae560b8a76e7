"""envcheck: will this machine, this Python environment and this training configuration train?"""

__version__ = "0.1.0"
