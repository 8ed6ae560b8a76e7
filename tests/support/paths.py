"""The paths of this checkout and of the tests' data."""

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "tests/data"
