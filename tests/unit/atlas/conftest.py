"""The readers take what users import and call from the shipped table."""

from __future__ import annotations

from envcheck.commands.harvest.gaps import use_shipped_entries

use_shipped_entries()
