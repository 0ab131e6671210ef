"""The bill of materials of an installed ShardMeter, as CycloneDX 1.6 JSON, and whether every licence in it is one that we take.

    scripts/sbom.py -o build/sbom.cdx.json      what it needs to run, and what its extras need, as installed here
    scripts/sbom.py --check                     1 where a licence is unknown, or is none of ALLOWED

From the metadata of installed packages: what is not installed here is named on standard error and is in no list. The same environment
gives the same bytes: there is no date in it. Leaves out: what a wheel carries inside it and does not say in its licence; hashes of files.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import uuid
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "shardmeter"
ALLOWED = frozenset({
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD", "CC0-1.0", "HPND", "ISC", "MIT", "MIT-CMU", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib",
})  # fmt: skip
"""Licences that ask for no more than to be named."""
IN_EXTRAS = frozenset({"MPL-2.0"})
"""Those that an extra may have besides: what is changed in their own files stays open."""
CLASSIFIED = {
    "MIT License": "MIT", "BSD License": "BSD", "Apache Software License": "Apache-2.0", "Python Software Foundation License": "PSF-2.0",
    "ISC License (ISCL)": "ISC", "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0", "The Unlicense (Unlicense)": "Unlicense",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only", "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
}  # fmt: skip
"""Trove classifiers as identifiers; `BSD` is one of the two that the classifier does not tell apart."""
SPELT = {
    "mit": "MIT", "mit license": "MIT", "bsd": "BSD", "bsd 2-clause license": "BSD-2-Clause", "bsd-2-clause": "BSD-2-Clause", "bsd 3-clause license": "BSD-3-Clause",
    "bsd-3-clause": "BSD-3-Clause", "apache-2.0": "Apache-2.0", "apache 2.0": "Apache-2.0", "psf": "PSF-2.0", "mpl-2.0": "MPL-2.0",
}  # fmt: skip
"""First lines of the free text that older packages have."""
UNKNOWN = "unknown"


class Part(NamedTuple):
    """One installed package: its licence as an SPDX expression, what it needs here, and whether only extras need it."""

    name: str
    version: str
    licence: str
    needs: tuple[str, ...]
    extra: bool


def licence_of(found: metadata.PackageMetadata) -> str:
    """The SPDX expression that a package says, by its newest field; `unknown` where none tells."""
    if said := _said(found, "License-Expression"):
        return said
    text = _said(found, "License").strip().split("\n")[0].strip().lower()
    if text in SPELT:
        return SPELT[text]
    told = [
        one.rpartition("::")[2].strip() for one in found.get_all("Classifier") or () if one.startswith("License ::")
    ]
    named = sorted({CLASSIFIED.get(one, UNKNOWN) for one in told if one != "OSI Approved"})
    return " AND ".join(named) or UNKNOWN


def _said(found: metadata.PackageMetadata, field: str) -> str:
    """A field of a package; empty where it has none."""
    return str((found.get_all(field) or [""])[0])


def allowed(expression: str, taken: frozenset[str]) -> bool:
    """Whether one alternative of an expression is made of licences that are taken. Leaves out: brackets around alternatives."""
    ways = re.split(r"\s+OR\s+", expression.replace("(", "").replace(")", ""))
    return any(all(one.strip() in taken for one in re.split(r"\s+AND\s+", way)) for way in ways)


def installed(name: str) -> metadata.Distribution | None:
    """A package that is here."""
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def needed(name: str, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """What a package with these extras asks for on this machine: (name, extras)."""
    found = installed(name)
    for text in (found.requires or ()) if found else ():
        one = Requirement(text)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            yield canonicalize_name(one.name), frozenset(one.extras)


def closure(extras: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """Every package that ShardMeter with these extras needs, directly or not, each with what it needs itself."""
    found: dict[str, tuple[str, ...]] = {}
    left, asked = [(NAME, extras)], set[tuple[str, frozenset[str]]]()
    while left:
        name, more = left.pop()
        if (name, more) in asked:
            continue
        asked.add((name, more))
        wants = list(needed(name, more))
        found[name] = tuple(dict.fromkeys((*found.get(name, ()), *(one for one, _ in wants))))
        left += wants
    return found


def parts() -> tuple[list[Part], list[str]]:
    """(packages that are here, names of those that are not), by name; ShardMeter itself is none of them."""
    own = installed(NAME)
    if own is None:
        raise SystemExit(f"{NAME} is not installed here")
    running, whole = closure(frozenset()), closure(frozenset(own.metadata.get_all("Provides-Extra") or ()))
    made, missing = [], []
    for name in sorted(whole.keys() - {NAME}):
        there = installed(name)
        if there is None:
            missing.append(name)
            continue
        made.append(
            Part(name, there.version, licence_of(there.metadata), tuple(sorted(whole[name])), name not in running)
        )
    return made, missing


def refused(found: list[Part]) -> list[str]:
    """A sentence for every package whose licence we do not take."""
    return [
        f"{one.name} {one.version}: licence {one.licence} is not allowed {'in an extra' if one.extra else 'in what always runs'}"
        for one in found
        if not allowed(one.licence, ALLOWED | IN_EXTRAS if one.extra else ALLOWED)
    ]


def bill(found: list[Part]) -> dict[str, Any]:
    """The document: ECMA-424, CycloneDX 1.6."""
    own = metadata.distribution(NAME)
    references = {one.name: f"pkg:pypi/{one.name}@{one.version}" for one in found}
    root = f"pkg:pypi/{NAME}@{own.version}"
    direct = {
        one for one, _ in needed(NAME, frozenset(own.metadata.get_all("Provides-Extra") or ()))
    } & references.keys()
    components = [
        {
            "type": "library", "bom-ref": references[one.name], "name": one.name, "version": one.version,
            "scope": "optional" if one.extra else "required", "licenses": _licences(one.licence), "purl": references[one.name],
        }
        for one in found
    ]  # fmt: skip
    depends = [
        {"ref": references[one.name], "dependsOn": [references[need] for need in one.needs if need in references]}
        for one in found
    ]
    body = {
        "metadata": {
            "component": {
                "type": "application", "bom-ref": root, "name": NAME, "version": own.version, "licenses": _licences(licence_of(own.metadata)), "purl": root,
            }
        },
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": sorted(references[one] for one in direct)}, *depends],
    }  # fmt: skip
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1, **body}


def _licences(expression: str) -> list[dict[str, Any]]:
    """As the format wants it: an expression, or the name of what is none."""
    if expression == UNKNOWN or "BSD" in re.split(r"[\s()]+", expression):
        return [{"license": {"name": expression}}]
    return [{"expression": expression}]


def main() -> None:
    """Write the document, or check its licences."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true")
    options.add_argument("-o", "--out", type=Path)
    asked = options.parse_args()
    found, missing = parts()
    if missing:
        print(f"not installed here, and in no list: {', '.join(missing)}", file=sys.stderr)
    if asked.check:
        for says in (bad := refused(found)):
            print(says)
        print(f"{len(found)} packages, {sum(not one.extra for one in found)} of them always run, {len(bad)} refused")
        sys.exit(bool(bad))
    text = json.dumps(bill(found), indent=1) + "\n"
    if asked.out is None:
        print(text, end="")
    else:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
