"""Where this checkout and the data of its tests are."""

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "tests/data"
