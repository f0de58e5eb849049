"""Pseudonyms under a key: the same for the same key, and worth nothing without it.

Addresses: Crypto-PAn (Xu, Fan, Ammar, Moon: *Prefix-preserving IP address anonymization*, ICNP 2002). Two addresses that have
exactly k leading bits in common still have exactly k afterwards, so networks stay networks. IPv6 is the same over 128 bits.
Names of devices, files and interfaces: keyed BLAKE2b. The key is never stored; a fingerprint of it shows whether a corpus
goes on with the same one.
"""

from __future__ import annotations

import hashlib
import ipaddress
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from unbloat.corpus.unit import Unit
from unbloat.errors import UnbloatError

# 16 bytes for AES, and 16 that the padding is made of.
KEY_BYTES = 32
# Two names among a billion get the same pseudonym with a probability of 10^-11.
DIGEST_BYTES = 12
# Of one AES block, which is also the longest address.
BLOCK_BITS = 128
# Columns that hold addresses, by table.
ADDRESSES = {"connections": ("a_addr", "b_addr")}


def read_key(path: Path) -> bytes:
    """The key in a file: 32 bytes, or 64 hexadecimal digits. Raises `UnbloatError` for anything else."""
    data = path.read_bytes()
    if len(data) != KEY_BYTES:
        try:
            data = bytes.fromhex(data.decode("ascii"))
        except ValueError:
            data = b""
    if len(data) != KEY_BYTES:
        raise UnbloatError(
            f"{path}: is no key: it needs {KEY_BYTES} bytes, or {2 * KEY_BYTES} hexadecimal digits"
        )
    return data


class Pseudonyms:
    """What stands for addresses and names under one key."""

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        except ImportError:
            raise UnbloatError(
                "--anonymise needs AES: pip install 'unbloat[corpus-anonymise]'"
            ) from None
        self.key = key
        # ECB: Crypto-PAn is a function of single blocks, which one call computes for all bits of an address.
        self.cipher = Cipher(algorithms.AES(key[:16]), modes.ECB())
        self.padding = int.from_bytes(self.encrypted(key[16:]), "big")
        self.address = lru_cache(maxsize=1 << 16)(self.of_address)

    def encrypted(self, blocks: bytes) -> bytes:
        """AES of every block."""
        encryptor = self.cipher.encryptor()
        return encryptor.update(blocks) + encryptor.finalize()

    def of_address(self, text: str) -> str:
        """What stands for an address; a zone of this machine is left out."""
        address = ipaddress.ip_address(text.partition("%")[0])
        bits = address.max_prefixlen
        whole = int(address) << (BLOCK_BITS - bits)
        blocks = bytearray()
        for kept in range(bits):
            mask = (1 << (BLOCK_BITS - kept)) - 1
            blocks += ((whole & ~mask) | (self.padding & mask)).to_bytes(16, "big")
        made = self.encrypted(bytes(blocks))
        flips = 0
        for bit in range(bits):
            flips = flips << 1 | made[16 * bit] >> 7
        return str(type(address)(int(address) ^ flips))

    def name(self, kind: str, text: str) -> str:
        """What stands for the name of a `kind`: a device, a file, an interface."""
        data = text.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(data, key=self.key, digest_size=DIGEST_BYTES, person=kind.encode())
        return f"{kind}-{digest.hexdigest()}"

    def hidden(self, unit: Unit) -> Unit:
        """The unit under names that say nothing. How it is opened stays with this run."""
        keyed = hashlib.blake2b(unit["key"].encode(), key=self.key, digest_size=16)
        return unit | {
            "key": keyed.hexdigest(),
            "file": self.name("file", unit["file"]),
            "device": unit["device"] and self.name("device", unit["device"]),
            "replaces": [self.name("file", one) for one in unit.get("replaces", ())],
        }

    def fingerprint(self) -> str:
        """Differs for every key, and does not show it."""
        return self.name("key", "")

    def table(self, name: str, rows: pa.Table) -> pa.Table:
        """A table of one capture without addresses, and without names of interfaces."""
        for column in ADDRESSES.get(name, ()):
            given = pc.cast(rows[column], pa.utf8())
            known = pc.unique(given)
            stand_ins = pa.array([self.address(one) for one in known.to_pylist()], pa.utf8())
            places = pc.index_in(given, value_set=known)
            place = rows.column_names.index(column)
            rows = rows.set_column(
                place, column, pc.cast(pc.take(stand_ins, places), rows.schema.field(column).type)
            )
        if name == "captures":
            place = rows.column_names.index("interfaces")
            lists = [
                [one and self.name("interface", one) for one in listed]
                for listed in rows["interfaces"].to_pylist()
            ]
            rows = rows.set_column(place, "interfaces", pa.array(lists, pa.list_(pa.utf8())))
        return rows
