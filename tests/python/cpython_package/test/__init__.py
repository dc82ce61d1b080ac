"""The interpreter's own test package, and behind it what `make setup` unpacked of Debian's for the same version.

With this directory's parent in PYTHONPATH, children find the same tests by the same name.
"""

import os
import sys
import sysconfig

_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4))
_DEBIAN = "usr/lib/python{}.{}".format(*sys.version_info[:2])
_LIBRARIES = (
    sysconfig.get_path("stdlib"),
    os.path.join(_ROOT, ".venv", "cpython-tests", _DEBIAN),
    os.path.join("/", _DEBIAN),
)
__path__ = [os.path.join(library, "test") for library in _LIBRARIES]
