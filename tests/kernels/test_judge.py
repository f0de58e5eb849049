"""The judges of the guests: each bound, with a result that misses it."""

from __future__ import annotations

from typing import Any

import judge
import pytest

CONTROL = {"mbps": 7.9, "p50_ms": 1600, "p95_ms": 2070, "pings": 50}
CURED = {
    **{"mbps": 7.9, "p50_ms": 91, "p95_ms": 99, "pings": 68},
    **{"applied": True, "off": 0, "left": {}},
}


def cure(changed: dict[str, Any], control: dict[str, Any] = CONTROL) -> list[str]:
    return judge.cure("download-cured", CURED | changed, control)


def features(family: str, works: bool = True, count: int = judge.FEATURES) -> list[dict[str, Any]]:
    """As many features, of which those listed as missing do not work; or do."""
    lacking = sorted(judge.MISSING[family])
    names = [*lacking, *(f"other-{number}" for number in range(count - len(lacking)))]
    return [
        {"id": name, "works": name not in lacking or not works, "missing": "a reason"}
        for name in names
    ]


def test_a_good_cure_has_no_fault() -> None:
    assert cure({}) == []


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"p95_ms": 151}, "RTT p95 151 ms, above"),
        ({"mbps": 7.1}, "7.1 Mbit/s instead of 7.9"),
        ({"pings": 39}, "39 pings"),
        ({"applied": False}, "no connection"),
        ({"off": 1}, "off: exit code 1"),
        ({"left": {"maps": [0, 8]}}, "left after off: {'maps'"),
        ({"refused": "no such program"}, "refused: no such program"),
        ({"failed": "no result: did not boot"}, "did not boot"),
    ],
)
def test_each_bound_can_be_missed(changed: dict[str, Any], fault: str) -> None:
    found = cure(changed)
    assert len(found) == 1
    assert fault in found[0]


def test_a_cure_without_effect_is_a_fault() -> None:
    assert cure(CONTROL) != []


def test_a_path_without_a_queue_judges_no_cure() -> None:
    assert cure({}, CONTROL | {"p95_ms": 70}) == ["no queue without the cure: RTT p95 70 ms"]


def test_a_control_that_failed_is_a_fault() -> None:
    assert cure({}, {"failed": "no result"}) == ["download: failed: no result"]


def test_what_was_not_looked_at_is_a_fault() -> None:
    result = {key: value for key, value in CURED.items() if key != "left"}
    assert judge.cure("download-cured", result, CONTROL) == ["left after off: not looked at"]


@pytest.mark.parametrize("family", judge.MISSING)
def test_expected_features_are_no_fault(family: str) -> None:
    assert judge.features(family, {"features": features(family)}) == []


def test_a_feature_that_does_not_load_is_a_fault() -> None:
    found = judge.features("6.12", {"features": features("5.10")})
    assert len(found) == len(judge.MISSING["5.10"])
    assert all("does not work: a reason" in fault for fault in found)


def test_a_feature_that_works_against_expectation_is_a_fault() -> None:
    found = judge.features("6.1", {"features": features("6.1", works=False)})
    assert found == [
        f"{name} works, but is listed as missing" for name in sorted(judge.MISSING["6.1"])
    ]


def test_features_that_are_not_reported_are_a_fault() -> None:
    assert judge.features("6.12", {"features": []}) == ["0 features reported instead of 15"]
    assert judge.features("6.12", {"failed": "no result"}) == ["features: no result"]


TESTS = {"acks: passes": "same", "conformance: one": "same"}


def test_tests_that_all_pass_are_no_fault() -> None:
    assert judge.conformance("6.12", {"tests": TESTS}, frozenset(TESTS)) == []


@pytest.mark.parametrize(
    ("family", "changed", "fault"),
    [
        ("6.12", {"acks: passes": "failed"}, "acks: passes: failed"),
        ("6.12", {"conformance: one": "left out: bpf"}, "conformance: one: left out: bpf"),
        ("5.10", {}, "conformance: one passes, but is listed as left out"),
        ("5.10", {"conformance: one": "failed"}, "conformance: one: failed"),
    ],
)
def test_each_test_can_be_a_fault(family: str, changed: dict[str, str], fault: str) -> None:
    assert judge.conformance(family, {"tests": TESTS | changed}, frozenset(TESTS)) == [fault]


def test_a_test_that_was_not_run_is_a_fault() -> None:
    missing = judge.conformance("6.12", {"tests": {}}, frozenset(TESTS))
    assert missing == [f"{name}: not run" for name in TESTS]
    assert judge.conformance("6.12", {"failed": "no result"}, frozenset(TESTS)) != []


def test_a_kernel_may_leave_out_what_it_cannot_run() -> None:
    tests = TESTS | {"conformance: one": "left out: bpf: needs Linux 5.17"}
    assert judge.conformance("5.10", {"tests": tests}, frozenset(tests)) == []
