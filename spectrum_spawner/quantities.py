"""Quantities as Kubernetes writes them: texts, which are compared by value."""

import re
from decimal import Decimal

_QUANTITY = re.compile(
    r"(-?[0-9]+(?:\.[0-9]*)?|-?\.[0-9]+)(?:(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)|[eE]([+-]?[0-9]{1,2}))?\Z"
)
_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}


def quantity(text: str | int) -> Decimal:
    """The value of a Kubernetes quantity such as `500m`, `32Gi` or `1e9`; raises ValueError."""
    match = _QUANTITY.match(str(text))
    if not match:
        raise ValueError(f"{text!r} is no quantity")
    factor = Decimal(10) ** int(match[3]) if match[3] else _FACTORS.get(match[2], Decimal(1))
    return Decimal(match[1]) * factor
