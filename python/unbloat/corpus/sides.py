"""Which end of a connection is the device, so that *up* and *down* mean something.

The device is the end beside the capture. Where a connection does not show where it was captured, the device has an address
that another connection of the capture has beside it; else it is the end with a private address, else the one that began.
"""

from __future__ import annotations

import ipaddress

import pyarrow as pa
import pyarrow.compute as pc


def device_is_a(connections: pa.Table) -> pa.ChunkedArray:
    """For each connection, in the order of their ids: whether end a is the device."""
    a, b = connections["a_addr"], connections["b_addr"]
    vantage = pc.cast(connections["vantage"], pa.utf8())
    beside_a, beside_b = pc.equal(vantage, "a"), pc.equal(vantage, "b")
    own = pa.array(
        sorted(
            {*pc.unique(a.filter(beside_a)).to_pylist(), *pc.unique(b.filter(beside_b)).to_pylist()}
        ),
        pa.utf8(),
    )
    private = pa.array(
        sorted(
            address
            for address in {*pc.unique(a).to_pylist(), *pc.unique(b).to_pylist()}
            if is_private(address)
        ),
        pa.utf8(),
    )
    only_own = one_of(a, b, own)
    only_private = one_of(a, b, private)
    # Nulls mean "not known from this", and the next rule decides.
    by_vantage = pc.if_else(
        beside_a, True, pc.if_else(beside_b, False, pa.scalar(None, pa.bool_()))
    )
    return pc.coalesce(by_vantage, only_own, only_private, pa.scalar(True))


def one_of(a: pa.ChunkedArray, b: pa.ChunkedArray, known: pa.Array) -> pa.ChunkedArray:
    """True where a alone is among the addresses, false where b alone is, else null."""
    in_a, in_b = pc.is_in(a, value_set=known), pc.is_in(b, value_set=known)
    return pc.if_else(pc.xor(in_a, in_b), in_a, pa.scalar(None, pa.bool_()))


def is_private(address: str) -> bool:
    """Whether an address belongs to a local network."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_private
    except ValueError:
        return False


def uploads(rows: pa.Table, is_a: pa.ChunkedArray) -> pa.ChunkedArray:
    """For each row with a flow: whether its data comes from the device."""
    flow = rows["flow"] if "flow" in rows.column_names else rows["id"]
    from_a = pc.equal(pc.bit_wise_and(flow, pa.scalar(1, pa.uint32())), 0)
    a_is_device = pc.take(is_a, pc.divide(flow, pa.scalar(2, pa.uint32())))
    return pc.equal(from_a, a_is_device)
