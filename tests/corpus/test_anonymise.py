"""Pseudonyms: those of the published vectors, of the same networks, and nothing else below the folder of results."""

from __future__ import annotations

import ipaddress
import json
import random
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from results import command, final, run

pytest.importorskip("cryptography")

import unbloat
from unbloat.corpus.anonymise import Pseudonyms, read_key
from unbloat.errors import UnbloatError

# The key and addresses that were published with Crypto-PAn 1.0.
KEY = bytes.fromhex("1522178d33a4cf80130a5b1649907d10d8988f837979652762574c2d2a842202")
PUBLISHED = {
    "128.11.68.132": "135.242.180.132",
    "129.118.74.4": "134.136.186.123",
    "130.132.252.244": "133.68.164.234",
}
SEED = 20_261_129


def test_addresses_of_the_published_vectors() -> None:
    pseudonyms = Pseudonyms(KEY)
    assert {one: pseudonyms.address(one) for one in PUBLISHED} == PUBLISHED


@pytest.mark.parametrize("kind", [ipaddress.IPv4Address, ipaddress.IPv6Address])
def test_common_prefixes_stay_exactly_as_long(
    kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address],
) -> None:
    pseudonyms = Pseudonyms(KEY)
    draws = random.Random(SEED)
    bits = kind(0).max_prefixlen
    for _ in range(50):
        one = draws.getrandbits(bits)
        common = draws.randrange(bits)
        # Differs in the bit behind the common ones for certain, and at random behind that.
        other = one ^ 1 << (bits - 1 - common) ^ draws.getrandbits(bits) >> (common + 1)
        hidden = [int(kind(pseudonyms.address(str(kind(value))))) for value in (one, other)]
        assert bits - (hidden[0] ^ hidden[1]).bit_length() == common
        assert hidden[0] != one


def test_names_depend_on_the_key_and_zones_are_left_out() -> None:
    one, other = Pseudonyms(KEY), Pseudonyms(bytes(32))
    assert one.name("device", "phone0") != other.name("device", "phone0")
    assert one.name("device", "phone0") != one.name("file", "phone0")
    assert one.address("fe80::1%wlan0") == one.address("fe80::1")
    assert one.fingerprint() != other.fingerprint()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A file with the key."""
    path = tmp_path / "key"
    path.write_bytes(KEY)
    return path


@pytest.fixture
def secrets_of(phones: Path) -> list[str]:
    """Sources with everything that can go wrong; what of them may be stored nowhere."""
    (phones / "phone0/secret-text.pcap").write_text("this is no capture, but a text\n" * 9)
    (phones / "phone0/secret-broken.zip").write_bytes(b"PK\x03\x04 and no directory")
    (phones / "phone1/secret-gone.pcap").write_bytes(b"")
    whole = (phones / "phone0/capture-0.pcapng").read_bytes()
    (phones / "phone0/secret-cut.pcapng").write_bytes(whole[: len(whole) // 2 + 7])
    for kind in ("tar", "tar.gz"):
        path = phones / f"phone2/secret-archive.{kind}"
        with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as archive:
            archive.add(phones / "phone1/capture-1.pcapng", "secret-member.pcapng")
            archive.add(phones / "phone0/secret-text.pcap", "secret-bad.pcap")
            archive.add(phones / "phone0/secret-cut.pcapng", "secret-short.pcapng")
    rows = unbloat.analyze(phones / "phone0/capture-0.pcapng").connections.to_pylist()
    addresses = {row[end] for row in rows for end in ("a_addr", "b_addr")}
    return ["secret", "capture-", "phone0", "phone1", "phone2", *sorted(addresses)]


def everything(out: Path) -> dict[str, str]:
    """Every file below a folder as text: its bytes, and the cells of tables."""
    texts = {}
    for path in out.rglob("*"):
        if path.is_file():
            text = path.read_bytes().decode("latin-1")
            if path.suffix in (".parquet", ".arrow"):
                is_part = path.suffix == ".arrow"
                table = (
                    pa.ipc.open_file(path).read_all() if is_part else pq.ParquetFile(path).read()
                )
                text += repr(table.to_pydict()) + str(table.schema)
            texts[str(path.relative_to(out))] = text
    return texts


def test_no_address_device_or_file_is_left_anywhere(
    phones: Path, secrets_of: list[str], key: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results/out"
    outcome = run(phones, out, anonymise=key)
    assert outcome.done == 9 + 3  # the one that was cut, and two members of the tar
    lines = "\n".join(outcome.shown)
    assert f"{phones}/phone0/secret-text.pcap: not a pcap" in lines
    assert "secret" not in "\n".join(outcome.errors)
    texts = everything(out)
    assert len(texts) > 50
    # views.sql names the folder of results, which is not below itself.
    texts["views.sql"] = texts["views.sql"].replace(str(out), "")
    for name, text in texts.items():
        for secret in secrets_of:
            assert secret not in text, f"{secret} in {name}"
            assert secret not in name
        assert KEY.hex() not in text
        assert KEY.decode("latin-1") not in text
    plain = tmp_path / "plain"
    run(phones, plain)
    assert all(any(secret in text for text in everything(plain).values()) for secret in secrets_of)


def test_the_tables_are_those_of_a_run_without_pseudonyms(
    phones: Path, key: Path, tmp_path: Path
) -> None:
    plain, out = tmp_path / "plain", tmp_path / "out"
    run(phones, plain)
    run(phones, out, anonymise=key)
    pseudonyms = Pseudonyms(KEY)
    for name in ("connections", "flows", "captures"):
        before, after = (
            sorted(
                pq.read_table(folder / "table" / name).drop_columns(["unit"]).to_pylist(),
                key=lambda row: (row["file"], row.get("id", 0)),
            )
            for folder in (plain, out)
        )
        for row in before:
            row["file"] = pseudonyms.name("file", row["file"])
            row["device"] = pseudonyms.name("device", row["device"])
            if "a_addr" in row:
                row |= {end: pseudonyms.address(row[end]) for end in ("a_addr", "b_addr")}
            if "interfaces" in row:
                row["interfaces"] = [
                    one and pseudonyms.name("interface", one) for one in row["interfaces"]
                ]
        assert sorted(before, key=lambda row: (row["file"], row.get("id", 0))) == after, name


def test_a_run_goes_on_with_its_key_alone(phones: Path, key: Path, tmp_path: Path) -> None:
    out, plain = tmp_path / "out", tmp_path / "plain"
    run(phones / "phone0", out, anonymise=key)
    before = final(out)
    other = tmp_path / "other"
    other.write_text(bytes(range(32)).hex() + "\n")
    with pytest.raises(UnbloatError, match="was anonymised with another key"):
        run(phones, out, anonymise=other)
    with pytest.raises(UnbloatError, match="is anonymised; name its key with --anonymise"):
        run(phones, out)
    assert final(out) == before
    assert run(phones / "phone0", out, anonymise=key).ran == 0
    run(phones / "phone0", plain)
    with pytest.raises(UnbloatError, match="was begun without --anonymise"):
        run(phones, plain, anonymise=key)


def test_wrong_keys_are_one_line(phones: Path, key: Path, tmp_path: Path) -> None:
    assert read_key(key) == KEY
    key.write_text(KEY.hex())
    assert read_key(key) == KEY
    key.write_bytes(KEY[:31])
    process = command("run", phones, "--out", tmp_path / "out", "--anonymise", key)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors == f"unbloat: {key}: is no key: it needs 32 bytes, or 64 hexadecimal digits\n"
    process = command("run", phones, "--out", tmp_path, "--anonymise", key)
    assert "has to lie outside of the results" in process.communicate(timeout=60)[1]
    process = command("run", phones, "--out", tmp_path / "out", "--anonymise", tmp_path / "none")
    assert (
        process.communicate(timeout=60)[1]
        == f"unbloat: {tmp_path}/none: no such file or directory\n"
    )
    assert not (tmp_path / "out").exists()


def test_json_has_pseudonyms_and_the_terminal_has_names(
    phones: Path, key: Path, tmp_path: Path
) -> None:
    (phones / "text.pcap").write_text("this is no capture, but a text of some length\n" * 9)
    out = tmp_path / "out"
    process = command("run", phones, "--out", out, "--anonymise", key, "--json")
    output, errors = process.communicate(timeout=120)
    assert errors == f"unbloat: {phones}/text.pcap: not a pcap or pcapng file: looks like text\n"
    [line] = json.loads(output)["errors"]
    assert line.startswith("file-")
    assert line.endswith(": not a pcap or pcapng file: looks like text")
    assert list(unbloat.corpus(out).status().errors()) == [line]
