"""Writes `data/grids.csv`: the carbon of the grids that cloud regions draw from, and what halls use beside the machines.

    python scripts/condense_grids.py CARBON CCF

CARBON is Google's table of its regions (GoogleCloudPlatform/region-carbon-info, 2024.csv), CCF a checkout of Cloud Carbon Footprint,
whose constants in TypeScript say the grids of AWS and Azure. Regions are those of `data/geo/regions.csv`; those of which neither
says anything have no row.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

DATA = Path(__file__).parent.parent / "src" / "shardmeter" / "data"
RETRIEVED = "2026-11-30"
CCF = "Cloud Carbon Footprint b7a049c (Apache-2.0): emission factors of the grid"
CONSTANTS = "FootprintEstimationConstants.ts"
COLUMNS = "name carbon pue date notes source retrieved"
HALLS = (
    ("aws", "1.135", "2024-03", "", "Cloud Carbon Footprint b7a049c: PUE of AWS"),
    ("azure", "1.185", "2024-03", "", "Cloud Carbon Footprint b7a049c: PUE of Azure"),
    ("gcp", "1.1", "2024-03", "", "Cloud Carbon Footprint b7a049c: PUE of Google Cloud"),
    ("other", "1.58", "2023", "halls of all kinds; 1.55 in 2022", "Uptime Institute, Global Data Center Survey 2023, as quoted by upsite.com"),
)  # fmt: skip
"""Providers, and whoever is none of them: energy of the hall over that of the machines."""
_FACTOR = re.compile(r"_REGIONS\.(\w+?)(?:\.name)?\]:\s*(?:US_NERC_REGIONS_EMISSIONS_FACTORS\.(\w+)|([0-9.]+))")
_NAMED = re.compile(r"(\w+)(?: = '|: \{\s*name: ')([^']+)'")


def factors(root: Path, provider: str) -> dict[str, float]:
    """t/kWh by region of one provider, from its constants."""
    title, inside = provider.capitalize(), root / "packages"
    shared = (inside / "core" / "src" / CONSTANTS).read_text(encoding="utf-8")
    american = {name: float(value) for name, value in re.findall(r"(\w+): (0\.[0-9]+)", shared)}
    library = provider.upper() if provider == "aws" else title
    regions = dict(_NAMED.findall((inside / provider / "src" / "lib" / f"{library}Regions.ts").read_text("utf-8")))
    text = (inside / provider / "src" / "domain" / f"{title}{CONSTANTS}").read_text(encoding="utf-8")
    return {
        regions[key].lower(): american[of] if of else float(value)
        for key, of, value in _FACTOR.findall(text)
        if key in regions
    }


def rows(carbon: Path, root: Path) -> list[dict[str, str]]:
    """All rows: halls first, then regions in the order of their table."""
    made = [{"name": n, "pue": p, "date": d, "notes": t, "source": s} for n, p, d, t, s in HALLS]
    with carbon.open(encoding="utf-8", newline="") as file:
        google = {row["Google Cloud Region"]: float(row["Grid carbon intensity (gCO2eq / kWh)"]) for row in csv.DictReader(file)}  # fmt: skip
    grids = {name: {key: 1e6 * value for key, value in factors(root, name).items()} for name in ("aws", "azure")}
    with (DATA / "geo" / "regions.csv").open(encoding="utf-8", newline="") as file:
        for region in csv.DictReader(file):
            provider, _, short = region["name"].partition(":")
            value = (grids | {"gcp": google})[provider].get(short)
            if value is None:
                continue
            date, source = ("2024", "GoogleCloudPlatform/region-carbon-info 49f3f26: grid carbon intensity, mean of the year's hours") if provider == "gcp" else ("2024-03", CCF)  # fmt: skip
            made.append({"name": region["name"], "carbon": f"{value:.4g} g/kWh", "date": date, "source": source})
    return made


def main() -> None:
    """Condense what is named."""
    found = rows(Path(sys.argv[1]), Path(sys.argv[2]))
    with (DATA / "grids.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS.split(), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "retrieved": RETRIEVED} for row in found)
    print(len(found), "rows")


if __name__ == "__main__":
    main()
