"""Writes the rows of wide-area networks that ship with the package, from collected tables: `data/geo/`.

    python scripts/condense_wan.py TABLES    from a directory with the Skyplane tables

Regions, egress prices and pairs are condensed here; `links.csv`, the presets, is written by hand. Pairs are those of the
`MAIN` regions, one row for both directions, the median of what was measured; egress prices are medians over the
regions of a continent. All tables together have at most `MOST` rows.
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

OUT = Path(__file__).parent.parent / "src" / "shardmeter" / "data" / "geo"
MOST = 500
SKYPLANE = "Skyplane profiles (skyplane-project/skyplane 11e38021), premium tier"
RETRIEVED = "2026-11-29"
MAIN = (
    "aws:us-east-1", "aws:us-east-2", "aws:us-west-2", "aws:ca-central-1", "aws:eu-west-1", "aws:eu-central-1",
    "aws:eu-north-1", "aws:ap-northeast-1", "aws:ap-southeast-1", "aws:ap-south-1",
    "gcp:us-central1", "gcp:us-east4", "gcp:us-west1", "gcp:us-west4", "gcp:europe-west4", "gcp:europe-west1",
    "gcp:europe-north1", "gcp:asia-east1", "gcp:asia-northeast1", "gcp:asia-southeast1",
    "azure:eastus", "azure:westus3", "azure:westeurope", "azure:northeurope", "azure:uksouth", "azure:japaneast",
)  # fmt: skip
"""Regions of which every pair has a row."""
VM_BANDWIDTH = {"aws": "5 Gbit/s", "gcp": "7 Gbit/s", "azure": "12 Gbit/s"}
"""What one VM of 32 cores sends to other regions over 64 streams: the provider's cap, not the line's."""
WINDOW = {"aws": "1.06 MB", "gcp": "3.46 MB", "azure": ""}
"""Bytes that a single TCP stream into the provider's VMs had under way, default kernels (doitintl/intercloud-throughput)."""
PLACES = """
north-america aws us-east-1 N. Virginia 39.0 -77.5
north-america aws us-east-2 Ohio 40.0 -83.0
north-america aws us-west-1 N. California 37.4 -121.9
north-america aws us-west-2 Oregon 45.8 -119.7
north-america aws ca-central-1 Montreal 45.5 -73.6
europe aws eu-central-1 Frankfurt 50.1 8.7
europe aws eu-north-1 Stockholm 59.3 18.1
europe aws eu-south-1 Milan 45.5 9.2
europe aws eu-west-1 Dublin 53.3 -6.3
europe aws eu-west-2 London 51.5 -0.1
europe aws eu-west-3 Paris 48.9 2.4
asia aws ap-east-1 Hong Kong 22.3 114.2
asia aws ap-northeast-1 Tokyo 35.7 139.7
asia aws ap-northeast-2 Seoul 37.6 127.0
asia aws ap-northeast-3 Osaka 34.7 135.5
asia aws ap-south-1 Mumbai 19.1 72.9
asia aws ap-southeast-1 Singapore 1.35 103.8
oceania aws ap-southeast-2 Sydney -33.9 151.2
africa aws af-south-1 Cape Town -33.9 18.4
middle-east aws me-south-1 Bahrain 26.1 50.6
south-america aws sa-east-1 Sao Paulo -23.5 -46.6
north-america azure eastus N. Virginia 39.0 -77.5
north-america azure eastus2 Virginia 36.7 -78.4
north-america azure northcentralus Illinois 41.9 -87.6
north-america azure southcentralus Texas 29.4 -98.5
north-america azure westus California 37.8 -122.4
north-america azure westus2 Washington 47.2 -119.9
north-america azure westus3 Phoenix 33.4 -112.1
north-america azure canadacentral Toronto 43.7 -79.4
europe azure francecentral Paris 48.9 2.4
europe azure germanywestcentral Frankfurt 50.1 8.7
europe azure northeurope Dublin 53.3 -6.3
europe azure swedencentral Gavle 60.7 17.1
europe azure uksouth London 51.5 -0.1
europe azure westeurope Netherlands 52.4 4.9
asia azure japaneast Tokyo 35.7 139.8
asia azure koreacentral Seoul 37.6 127.0
oceania azure australiaeast Sydney -33.9 151.2
north-america gcp us-central1 Council Bluffs 41.3 -95.9
north-america gcp us-east1 South Carolina 33.2 -80.0
north-america gcp us-east4 N. Virginia 39.0 -77.5
north-america gcp us-east5 Columbus 40.0 -83.0
north-america gcp us-south1 Dallas 32.8 -96.8
north-america gcp us-west1 The Dalles 45.6 -121.2
north-america gcp us-west2 Los Angeles 34.1 -118.2
north-america gcp us-west3 Salt Lake City 40.8 -111.9
north-america gcp us-west4 Las Vegas 36.2 -115.1
north-america gcp northamerica-northeast1 Montreal 45.5 -73.6
north-america gcp northamerica-northeast2 Toronto 43.7 -79.4
europe gcp europe-central2 Warsaw 52.2 21.0
europe gcp europe-north1 Hamina 60.6 27.2
europe gcp europe-west1 St. Ghislain 50.5 3.8
europe gcp europe-west2 London 51.5 -0.1
europe gcp europe-west3 Frankfurt 50.1 8.7
europe gcp europe-west4 Eemshaven 53.4 6.8
europe gcp europe-west6 Zurich 47.4 8.5
asia gcp asia-east1 Changhua 24.1 120.5
asia gcp asia-east2 Hong Kong 22.3 114.2
asia gcp asia-northeast1 Tokyo 35.7 139.7
asia gcp asia-northeast2 Osaka 34.7 135.5
asia gcp asia-northeast3 Seoul 37.6 127.0
asia gcp asia-south1 Mumbai 19.1 72.9
asia gcp asia-south2 Delhi 28.6 77.2
asia gcp asia-southeast1 Singapore 1.35 103.8
asia gcp asia-southeast2 Jakarta -6.2 106.8
oceania gcp australia-southeast1 Sydney -33.9 151.2
oceania gcp australia-southeast2 Melbourne -37.8 145.0
south-america gcp southamerica-east1 Sao Paulo -23.5 -46.6
south-america gcp southamerica-west1 Santiago -33.4 -70.7
"""
"""continent, provider, region, city, latitude, longitude: the city that the provider names, to a tenth of a degree."""
_PLACE = re.compile(r"(\S+) (\S+) (\S+) (.+) (-?[\d.]+) (-?[\d.]+)")
Pair = tuple[str, str]


def region_of(name: str) -> str:
    """A region without its zone: gcp:us-central1-a → gcp:us-central1."""
    return re.sub(r"^(gcp:.*\d)-[a-f]$", r"\1", name)


def measured(path: Path, column: str) -> Mapping[Pair, list[float]]:
    """Values of a Skyplane table by (from, to), premium tier at both ends."""
    found: dict[Pair, list[float]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["src_tier"] == row["dst_tier"] == "PREMIUM" and row[column]:
                found[region_of(row["src_region"]), region_of(row["dst_region"])].append(float(row[column]))
    return found


def places() -> dict[str, dict[str, str]]:
    """The regions by provider:region."""
    rows = {}
    for line in PLACES.strip().splitlines():
        match = _PLACE.fullmatch(line)
        if match is None:
            raise ValueError(line)
        continent, provider, region, city, latitude, longitude = match.groups()
        rows[f"{provider}:{region}"] = {
            "name": f"{provider}:{region}", "aliases": region, "provider": provider, "city": city,
            "continent": continent, "latitude": latitude, "longitude": longitude,
            "vm_bandwidth": VM_BANDWIDTH[provider], "window": WINDOW[provider],
        }  # fmt: skip
    return rows


def regions() -> list[dict[str, str]]:
    """Rows of `regions.csv`."""
    source = f"city: the provider's list of regions; caps: {SKYPLANE}; windows: doitintl/intercloud-throughput 4046e3d"
    return [{**row, "source": source} for row in places().values()]


def pairs(tables: Path) -> list[dict[str, str]]:
    """Rows of `pairs.csv`: the `MAIN` regions with each other."""
    rates = measured(tables / "skyplane_throughput_2022.csv", "throughput_received_gbps")
    delays = measured(tables / "skyplane_latency_2022.csv", "avg_rtt_ms")
    made = []
    for position, one in enumerate(MAIN):
        for other in MAIN[position + 1 :]:
            rtt = [*delays.get((one, other), ()), *delays.get((other, one), ())]
            made.append(
                {
                    "name": f"{one}/{other}",
                    "rtt": f"{statistics.median(rtt):.3g} ms",
                    "bandwidth": f"{statistics.median(rates[one, other]):.3g} Gbit/s",
                    "bandwidth_back": f"{statistics.median(rates[other, one]):.3g} Gbit/s",
                    "streams": "64",
                    "date": "2022-01",
                    "source": SKYPLANE,
                }
            )
    return made


def reach(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """How far traffic goes, in the words of price lists."""
    if one["provider"] != other["provider"]:
        return "internet"
    if one["name"] == other["name"]:
        return "region"
    return "continent" if one["continent"] == other["continent"] else "world"


def egress(tables: Path) -> list[dict[str, str]]:
    """Rows of `egress.csv`: medians by provider, continent of the sender, and reach."""
    known = places()
    found: dict[str, list[float]] = defaultdict(list)
    for (one, other), prices in measured(tables / "skyplane_egress_cost_2022.csv", "usd_per_GB").items():
        if one in known and other in known:
            name = f"{known[one]['provider']}/{known[one]['continent']}/{reach(known[one], known[other])}"
            found[name] += prices
    source = "list prices as collected by skyplane-project/skyplane 11e38021: median over regions"
    return [
        {
            "name": name,
            "price": f"${statistics.median(prices):.4g}/GB",
            "least": f"${min(prices):.4g}/GB",
            "most": f"${max(prices):.4g}/GB",
            "date": "2022",
            "source": source,
        }
        for name, prices in sorted(found.items())
    ]


def write(kind: str, rows: Sequence[Mapping[str, str]], columns: Iterable[str]) -> None:
    """One table, every row with the date on which its source was read."""
    names = [*columns, "retrieved"]
    with (OUT / f"{kind}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "retrieved": RETRIEVED} for row in rows)


def main() -> None:
    """Condense the tables of the folder that is named."""
    tables = Path(sys.argv[1])
    made = {"regions": regions(), "pairs": pairs(tables), "egress": egress(tables)}
    columns = {
        "regions": "name aliases provider city continent latitude longitude vm_bandwidth window source",
        "pairs": "name rtt bandwidth bandwidth_back streams date source",
        "egress": "name price least most date source",
    }
    for kind, rows in made.items():
        write(kind, rows, columns[kind].split())
    with (OUT / "links.csv").open(encoding="utf-8", newline="") as file:
        presets = len(list(csv.DictReader(file)))
    total = sum(map(len, made.values())) + presets
    if total > MOST:
        raise SystemExit(f"{total} rows; at most {MOST}")
    print(", ".join(f"{kind} {len(rows)}" for kind, rows in made.items()), f"links {presets}, together {total}")


if __name__ == "__main__":
    main()
