"""The tool under test, run as users run it."""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / os.environ.get("DROVER_BUILD_DIR", "build/dev")
FAKE_DRIVER = {
    "DROVER_LIBCUDA": str(BUILD / "tests/fake_driver/libcuda.so.1"),
    "DROVER_LIBNVML": str(BUILD / "tests/fake_driver/libnvidia-ml.so.1"),
}
NO_DRIVER = {"DROVER_LIBCUDA": "/nonexistent/libcuda.so.1", "DROVER_LIBNVML": "/nonexistent/libnvidia-ml.so.1"}
SETTINGS = ("DROVER_", "CUDA_", "NVIDIA_", "FAKE_", "NO_COLOR")

WATCHDOG = 300  # seconds; ends a run that hangs


@dataclass
class Drover:
    """The tool with an environment."""

    environment: dict[str, str] = field(default_factory=dict)
    path: Path = BUILD / "cli/drover"

    def variables(self) -> dict[str, str]:
        """The environment: the user's without settings of drover and CUDA, overridden by ours."""
        return {k: v for k, v in os.environ.items() if not k.startswith(SETTINGS)} | self.environment

    def run(self, *arguments: str, **options) -> subprocess.CompletedProcess:
        """Run the tool to its end, and capture its output."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.run(
            [self.path, *arguments], env=self.variables(), text=True, timeout=WATCHDOG, check=False, **options
        )

    def read_json(self, *arguments: str, status: int = 0) -> dict:
        """Run with --json and parse the output; the exit status must be `status`."""
        done = self.run(*arguments, "--json")
        assert (done.returncode, done.stderr) == (status, "")
        return json.loads(done.stdout)

    def with_settings(self, **settings: str) -> "Drover":
        """The same tool with more variables set."""
        return Drover(self.environment | settings, self.path)
