"""The build hook: compile compat/*.toml to JSON files inside the wheel.

`judging.json` is the matrix as doctor and gate load it, with every clause parsed. `vocabulary.json`
declares the keys of all facts, for commands that run no probe. `source.json` is all of compat/, for pin,
lint and overlays, but for its table `release`: plans read only that, so `release.json` has it.
`needed_texts.json` has what explain's patterns need to match. `atlas/` lists what releases of packages
require of one another, `names/` has which releases have which names. `dialects.json` is what --train needs
in addition. Each language of compat/lang is a separate file, as are the tables of fit and fleet and that of
published releases. A bill of materials lists them all. A mistake in compat/ stops the build.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import sys
import tempfile
import tomllib
import uuid
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DIGESTS = "digests.json"
"""Name of the file with the sha256 of all other files; `envcheck --version -v` compares them."""


def compiled() -> dict[str, Any]:
    """Return the contents that the build adds to the package, by path in `envcheck/shipped`."""
    from envcheck import probes
    from envcheck.commands import loading
    from envcheck.host.package_files import source_texts
    from envcheck.knowledge.atlas import freeze_atlas
    from envcheck.knowledge.compiled import freeze_matrix, freeze_vocabulary
    from envcheck.knowledge.load import build_matrix
    from envcheck.knowledge.needed_text import freeze_needed
    from envcheck.knowledge.release_metadata import freeze_releases

    tree = loading.source_tree()
    keys = loading.vocabulary(probes.every_probe())
    known = build_matrix(tree, keys)
    atlas = freeze_atlas(loading.load_atlas())
    dialects = source_texts("compat/dialects", ".toml")
    contents = {
        "judging.json": freeze_matrix(known),
        "vocabulary.json": freeze_vocabulary(keys),
        "source.json": {**tree, "tables": {**tree["tables"], "release": []}},
        "release.json": tree["tables"]["release"],
        "needed_texts.json": freeze_needed(tree),
        **{f"atlas/{name}.json": content for name, content in atlas.items()},
        "dialects.json": {Path(name).stem: tomllib.loads(text) for name, text in dialects.items()},
    }
    for name, text in source_texts("compat/lang", ".toml").items():
        contents[f"compat/lang/{Path(name).stem}.json"] = tomllib.loads(text)
    for folder in ("names", "raised", "members", "given", "symbols", "auto_classes", "hub_models"):
        for name, text in source_texts(f"compat/{folder}", ".txt").items():
            contents[f"{folder}/{Path(name).stem}.json"] = text
    releases = source_texts("compat/atlas/releases", ".txt")
    contents["compat/atlas/releases.json"] = freeze_releases(releases)
    for table in ("architectures", "fleet"):  # fit and fleet read only these
        for name, text in source_texts("compat/tables", ".toml", table).items():
            contents[f"compat/tables/{Path(name).stem}.json"] = tomllib.loads(text)
    return contents


def written(folder: Path) -> list[str]:
    """Write the compiled files and their digests into a folder, and return their names."""
    contents = compiled()
    for name, content in contents.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(content, separators=(",", ":")), "utf-8")
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in sorted(contents)}
    (folder / DIGESTS).write_text(json.dumps(digests, indent=1) + "\n", "utf-8")
    return [*contents, DIGESTS]


def bill_of_materials(project: str, version: str, folder: Path, names: list[str]) -> str:
    """Return the wheel's SBOM (PEP 770) in CycloneDX 1.6: envcheck, and each compiled file with its digest.

    The wheel contains no third-party files. The SBOM contains neither a time nor a random number, so equal
    sources give equal bytes.
    """
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in sorted(names)}
    purl = f"pkg:pypi/{project}@{version}"
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"{purl}#{''.join(digests.values())}")
    main = {"type": "application", "bom-ref": purl, "name": project, "version": version, "purl": purl}
    tree = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": {**main, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": [
            {
                "type": "data",
                "bom-ref": name,
                "name": f"envcheck/shipped/{name}",
                "version": version,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
            for name, digest in digests.items()
        ],
        "dependencies": [{"ref": purl, "dependsOn": list(digests)}],
    }
    return json.dumps(tree, indent=1) + "\n"


class CompileMatrix(BuildHookInterface[Any]):
    """Build hook that adds the compiled files to a wheel; an editable install reads the TOML directly."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is assembled."""
        if version == "editable":
            return
        folder = Path(tempfile.mkdtemp(prefix="envcheck-matrix-"))
        atexit.register(
            shutil.rmtree, folder, ignore_errors=True
        )  # the wheel is assembled after this method returns
        sys.path.insert(0, self.root)
        try:
            names = written(folder)
        finally:
            sys.path.remove(self.root)
        sbom = folder / "envcheck.cdx.json"
        sbom.write_text(bill_of_materials(self.metadata.name, self.metadata.version, folder, names), "utf-8")
        build_data["sbom_files"].append(str(sbom))
        for name in names:
            build_data["force_include"][str(folder / name)] = f"envcheck/shipped/{name}"
