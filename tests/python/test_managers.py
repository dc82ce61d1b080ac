"""Managers: what they store is a value, shared memory stays shared, and errors leave the connection usable."""

from __future__ import annotations

import os
from typing import Any

import drover
import pytest
from drover import _core, _managers
from programs import run


class Unsendable:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        """Refuse."""
        raise ValueError("not me")


class Unreadable:
    """Can be pickled, but not rebuilt."""

    def __reduce__(self) -> Any:
        """Name a call that fails."""
        return int, ("z",)


def test_errors_in_the_middle_of_a_message_leave_the_manager_as_it_was() -> None:
    """Its objects, its connections and their descriptors."""
    shared = drover.zeros(10_000)
    with drover.Manager() as manager:
        stored = manager.dict(kept=1)

        def count() -> int:
            return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in (os.getpid(), manager._process.pid))

        stored["shared"] = shared
        assert (stored["shared"] == 0).all()
        before = count()
        for _ in range(5):
            with pytest.raises(ValueError, match="not me"):
                stored["bad"] = [shared, Unsendable()]
            with pytest.raises(Exception, match="invalid literal"):
                stored["bad"] = [shared, Unreadable()]
            assert sorted(stored.keys()) == ["kept", "shared"]
            assert stored["shared"].shape == (10_000,)
        assert count() <= before + 3  # the manager's threads end their connections when they like


class Full:
    """A queue that nobody reads."""

    handle = ""

    def put(self, *_: Any) -> Any:
        """Return what a put returns after a minute."""
        return _core.PutResult.timed_out


def test_message_that_could_not_be_put_is_not_announced() -> None:
    """Its reader would wait for it."""

    class Inner:
        def send_bytes(self, data: bytes) -> None:
            raise AssertionError(data)

    end = _managers._Connection(Inner())
    end._outward = Full()
    with pytest.raises(drover.PeerLost, match=r"could not be sent to a manager, or back: .*timed_out"):
        end.send([drover.zeros(10_000)])


def test_memory_of_replaced_values_is_freed() -> None:
    """Arrays that lie in shared memory are held by the manager only as long as it stores them."""
    lines = run(
        """
        import drover
        from pathlib import Path

        def mapped(manager):
            return 4096 * int(Path(f"/proc/{manager._process.pid}/statm").read_text().split()[0])

        if __name__ == "__main__":
            with drover.Manager() as manager:
                stored = manager.dict()
                sizes = []
                for round in range(60):
                    array = drover.zeros(8_000_000)
                    array[:] = round
                    stored["array"] = array
                    assert (stored["array"] == round).all()
                    del array
                    sizes.append(mapped(manager))
                print(len(stored.keys()), max(sizes) < sizes[9] + 30 * 64_000_000 or sizes)
        """
    )
    assert lines == ["1 True"]
