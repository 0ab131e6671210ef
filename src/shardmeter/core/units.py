"""Annotated number types: every number in ShardMeter is SI inside and carries its unit in its annotation.

A number is a Python float or a NumPy float64 array; formulas never care which. The annotation is read by the formula
registry (documentation, dimension test) and by the renderers; it costs nothing at run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt

Number: TypeAlias = float | npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of an annotated number, in the symbols of `core.quantity`: products of s, B, FLOP, W, USD, kg and 1."""

    symbol: str


Count: TypeAlias = Annotated[Number, Unit("1")]
Fraction: TypeAlias = Annotated[Number, Unit("1")]
Nats: TypeAlias = Annotated[Number, Unit("1")]
Ratio: TypeAlias = Annotated[Number, Unit("1")]
Seconds: TypeAlias = Annotated[Number, Unit("s")]
PerSecond: TypeAlias = Annotated[Number, Unit("1/s")]
Bytes: TypeAlias = Annotated[Number, Unit("B")]
BytesPerS: TypeAlias = Annotated[Number, Unit("B/s")]
Flop: TypeAlias = Annotated[Number, Unit("FLOP")]
FlopPerS: TypeAlias = Annotated[Number, Unit("FLOP/s")]
Watts: TypeAlias = Annotated[Number, Unit("W")]
Joules: TypeAlias = Annotated[Number, Unit("W*s")]
Usd: TypeAlias = Annotated[Number, Unit("USD")]
UsdPerS: TypeAlias = Annotated[Number, Unit("USD/s")]
UsdPerByte: TypeAlias = Annotated[Number, Unit("USD/B")]
UsdPerByteS: TypeAlias = Annotated[Number, Unit("USD/(B*s)")]
UsdPerJoule: TypeAlias = Annotated[Number, Unit("USD/(W*s)")]
Kilograms: TypeAlias = Annotated[Number, Unit("kg")]
KilogramsPerJoule: TypeAlias = Annotated[Number, Unit("kg/(W*s)")]
Degrees: TypeAlias = Annotated[Number, Unit("1")]

GIB = 2.0**30
"""Bytes in one GiB: the unit of every `*_gib` key."""
