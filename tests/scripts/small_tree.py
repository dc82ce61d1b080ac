"""Small git trees on which tests run scripts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"


class Tree:
    """A git tree in a temporary directory on which a script can be run."""

    def __init__(self, root: Path) -> None:
        """Create an empty tree."""
        self.root = root
        subprocess.run(["git", "init", "--quiet", str(root)], check=True)

    def write(self, name: str, text: str) -> None:
        """Write a file of the tree."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, script: str, *arguments: str) -> tuple[int, str]:
        """Run a script on the tree; its exit status and its output."""
        command = [sys.executable, str(SCRIPTS / script), "--root", str(self.root), *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout
