"""Products by short name, and node specs such as ``8xH100`` or ``4xH100+2xT4``."""

from __future__ import annotations

import re

from msgspec import Struct


class Product(Struct, frozen=True, kw_only=True):
    name: str
    memory: int | None
    """Bytes; None: the query is not supported, as on parts with one memory for CPU and GPU."""
    compute: tuple[int, int]
    mig: bool
    recovery: bool
    """Whether the driver knows a recovery action for it."""
    xids: bool = True
    """Whether its critical XIDs can be watched."""


MIB = 1 << 20
PRODUCTS = {
    "H100": Product(name="NVIDIA H100 80GB HBM3", memory=81559 * MIB, compute=(9, 0), mig=True, recovery=True),
    "H200": Product(name="NVIDIA H200", memory=143771 * MIB, compute=(9, 0), mig=True, recovery=True),
    "A100": Product(name="NVIDIA A100-SXM4-40GB", memory=40960 * MIB, compute=(8, 0), mig=True, recovery=True),
    "L4": Product(name="NVIDIA L4", memory=23034 * MIB, compute=(8, 9), mig=False, recovery=True),
    "T4": Product(name="Tesla T4", memory=15360 * MIB, compute=(7, 5), mig=False, recovery=False),
    "GB10": Product(name="NVIDIA GB10", memory=None, compute=(12, 1), mig=False, recovery=False, xids=False),
}
_PART = re.compile(r"(?:(\d+)x)?([A-Za-z0-9]+)")


def parse(spec: str) -> list[Product]:
    """The products of a node, in order of their PCI addresses; raises ValueError with what is known."""
    found: list[Product] = []
    for part in filter(None, spec.replace(" ", "").split("+")):
        match = _PART.fullmatch(part)
        product = PRODUCTS.get(match[2].upper()) if match else None
        if match is None or product is None:
            known = ", ".join(PRODUCTS)
            raise ValueError(f"{part!r} is not a count and a product such as 8xH100; known products: {known}")
        found += [product] * int(match[1] or 1)
    if len(found) > 32:
        raise ValueError(f"{spec!r} has {len(found)} GPUs, a simulated node has room for 32")
    return found
