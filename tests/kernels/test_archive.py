"""What the archive lacks, and what that means for the check."""

from __future__ import annotations

from pathlib import Path

import archive
import machine
import pytest
import test_guests


def test_an_archive_that_does_not_answer_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_mirror", lambda part: f"http://127.0.0.1:9/{part}")
    with pytest.raises(archive.Unavailable, match=r"127\.0\.0\.1"):
        archive.Archive(tmp_path).fetch("6.12")


def test_the_newest_of_a_family_is_the_highest_version() -> None:
    names = tuple(
        f"linux-image-{version}-cloud-amd64"
        for version in ("6.1.0-9", "6.1.0-56", "6.12.9+deb13", "6.12.117+deb13", "7.0-rc1")
    )
    assert archive._newest("6.1", names)[0] == "6.1.0-56"
    assert archive._newest("6.12", names)[0] == "6.12.117+deb13"
    assert archive._newest("newest", names)[0] == "6.12.117+deb13"
    assert archive._newest("5.10", names) == ("", [])


def ran(booted: bool) -> machine.Run:
    return machine.Run({}, "the end of a console", timed_out=False, booted=booted, boot_s=1)


@pytest.mark.parametrize("required", ["all", "kernels"])
def test_fewer_than_two_kernels_fail_where_they_are_required(
    monkeypatch: pytest.MonkeyPatch, required: str
) -> None:
    monkeypatch.setenv("UNBLOAT_REQUIRE", required)
    few = test_guests.Guests({"6.1": ran(True), "6.12": ran(False)}, {"5.10": "no answer"})
    with pytest.raises(pytest.fail.Exception, match=r"booted: \['6.1'\]; .*5.10.*no answer"):
        test_guests.test_at_least_two_kernels_boot(few)
    test_guests.test_at_least_two_kernels_boot(
        test_guests.Guests({"6.1": ran(True), "6.12": ran(True)})
    )


def test_elsewhere_they_are_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNBLOAT_REQUIRE", "")
    with pytest.raises(pytest.skip.Exception, match="no answer"):
        test_guests.test_at_least_two_kernels_boot(test_guests.Guests({}, {"5.10": "no answer"}))


def test_a_kernel_that_is_not_fetched_is_named() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"no kernel of family 5\.10: no answer"):
        test_guests.test_features(test_guests.Guests({}, {"5.10": "no answer"}), "5.10")


def test_a_kernel_that_does_not_boot_fails_with_its_console() -> None:
    with pytest.raises(pytest.fail.Exception, match="the end of a console"):
        test_guests.test_features(test_guests.Guests({"6.1": ran(False)}), "6.1")
