"""Check the signatures of overlays: `FILE.minisig` beside each, by one of the keys that the settings trust.

The format is minisign's. py-minisign reads it and checks it with `cryptography`; both come with the extra
`signed`, and only settings that trust keys import them.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envcheck.core.errors import InputError
from envcheck.host.files import path_exists, read_file

ENDING = ".minisig"
_LARGEST = 1 << 12  # bytes of a signature


def check_signature(file: str, content: bytes, trusted: Sequence[str], settings: str) -> None:
    """Check that a file was signed by one of the trusted keys; `settings` is the file that names them.

    Raises:
        InputError: there is no signature, it belongs to another file or key, a key is malformed, or
            py-minisign is missing.
    """
    minisign = _minisign(settings)
    keys = [_public_key(minisign, key, settings) for key in trusted]
    name = f"{file}{ENDING}"
    if not path_exists(Path(name)):
        raise InputError(file, f"{settings} trusts only signed overlays, and {name} is not there")
    try:
        signature = minisign.Signature.from_bytes(read_file(Path(name), _LARGEST))
    except (minisign.Error, ValueError, IndexError) as error:
        raise InputError(name, f"not a signature of minisign: {error}") from None
    if not any(_verifies(minisign, key, content, signature) for key in keys):
        count = "the key" if len(keys) == 1 else f"any of the {len(keys)} keys"
        raise InputError(file, f"{name} is no signature of this content by {count} that {settings} trusts")


def _minisign(settings: str) -> Any:
    """Import py-minisign.

    Raises:
        InputError: it is not installed.
    """
    try:
        return importlib.import_module("minisign")
    except ImportError as error:
        problem = f"trusted_keys: checking signatures needs py-minisign (the extra `signed`): {error}"
        raise InputError(settings, problem) from None


def _public_key(minisign: Any, key: str, settings: str) -> Any:
    """Return the public key that a text encodes.

    Raises:
        InputError: the text is not a public key.
    """
    try:
        return minisign.PublicKey.from_base64(key)
    except (minisign.Error, ValueError, IndexError) as error:
        raise InputError(
            settings, f"trusted_keys: {key[:60]!r} is no public key of minisign: {error}"
        ) from None


def _verifies(minisign: Any, key: Any, content: bytes, signature: Any) -> bool:
    try:
        key.verify(content, signature)
    except (minisign.Error, ValueError):
        return False
    return True
