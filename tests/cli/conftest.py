"""The tool on three machines: this one, one without a driver, and one with the fake driver."""

from pathlib import Path

import pytest
from drover_tool import FAKE_DRIVER, NO_DRIVER, Drover


@pytest.fixture(scope="session")
def plain() -> Drover:
    """Give the tool with this machine's driver."""
    drover = Drover()
    assert drover.path.exists(), f"{drover.path} does not exist: build it, or set DROVER_BUILD_DIR"
    return drover


@pytest.fixture(scope="session")
def host(plain: Drover) -> Drover:
    """Give the tool on a machine without a driver: three emulated devices of 1 GiB."""
    return plain.with_settings(**NO_DRIVER, DROVER_HOST_DEVICES="3", DROVER_HOST_MEMORY="1GiB")


@pytest.fixture(scope="session")
def gpu(plain: Drover) -> Drover:
    """Give the tool with the fake driver, which shows one healthy GPU."""
    for library in FAKE_DRIVER.values():
        assert Path(library).exists(), f"{library} does not exist: build the targets fake_cuda and fake_nvml"
    return plain.with_settings(**FAKE_DRIVER)
