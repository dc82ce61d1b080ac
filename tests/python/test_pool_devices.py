"""The devices of a pool, in every form in which programs name them."""

from __future__ import annotations

import drover
import pytest


def test_devices_are_given_in_any_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """As text, and as lists of names, numbers, and objects such as torch.device."""

    class Device:
        type = "host"

        def __str__(self) -> str:
            return "host:1"

    monkeypatch.setenv("DROVER_BACKEND", "host")
    monkeypatch.setenv("DROVER_HOST_DEVICES", "2")
    for devices, expected in (
        ("host:1", ["host:1"]),
        (["host:1"], ["host:1"]),
        (["host:0", "host:1"], ["host:0", "host:1"]),
        ((1, 0), ["host:1", "host:0"]),
        (1, ["host:1"]),
        (Device(), ["host:1"]),
        ([Device(), "0"], ["host:1", "host:0"]),
        ((f"host:{index}" for index in range(2)), ["host:0", "host:1"]),
        (["cpu"], ["cpu"]),
    ):
        with drover.Pool(devices=devices) as pool:
            assert [worker["device"] for worker in pool.workers()] == expected
    for wrong in ([], [None], 1.5, [["host:0"]], True, {"host:0": 1}.items()):
        with pytest.raises(TypeError, match=r'devices must be "all", "none", or devices such as \["cuda:0"'):
            drover.Pool(devices=wrong)
    with pytest.raises(drover.NotFound, match="name one of those"):
        drover.Pool(devices=["cuda:7"])
