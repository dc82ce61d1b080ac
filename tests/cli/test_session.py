"""Named sessions end to end: the tool visits a keeper that the test starts and in which it takes part."""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest

SECONDS = 60  # ends a run that hangs
MAGIC, VERSION = 0x52565244, 2
JOIN, CREATE, DEPOSIT, KEEP = 2, 3, 7, 15
SLAB = 11  # the kind of object that has a file
LIST_KEYS = [
    "name",
    "keeper_pid",
    "participants",
    "starting",
    "departed",
    "objects",
    "object_bytes",
    "slabs",
    "slab_bytes",
    "age_seconds",
    "idle_limit_seconds",
    "problem",
]


def request(kind: int, number: int, name: str, sequence: int = 1) -> bytes:
    """Encode a control message: header, no object, a number and a name."""
    header = struct.pack("<IHHQ", MAGIC, VERSION, kind, sequence)
    return header + bytes(80) + struct.pack("<Q", number) + name.encode().ljust(64, b"\0")


def create_slab(size: int, sequence: int) -> bytes:
    """Encode the message that creates an object with a file: header, kind and size, no handle, no name."""
    header = struct.pack("<IHHQ", MAGIC, VERSION, CREATE, sequence)
    return header + struct.pack("<7Q", SLAB, size, 0, 0, 0, 0, 0) + bytes(96)


def keep(name: str, description: str, sequence: int) -> bytes:
    """Encode the message that keeps a record without blocks under a name."""
    entry = struct.pack("<4I3Q", len(name), len(description), 0, 0, 0, 0, 0)
    return request(KEEP, 0, "", sequence) + entry + name.encode() + description.encode()


def own_start_time() -> int:
    """The start time of this process in /proc."""
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


class Keeper:
    """The keeper of a named session, which is the tool itself."""

    def __init__(self, drover, name: str, idle_limit: int = 3600):
        """Start it and wait for its greeting."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = [
            "--drover-role=keeper",
            f"--drover-keeper-name={name}",
            f"--drover-keeper-idle-limit={idle_limit}",
        ]
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", 'exec "$0" "$@" 3<&0 </dev/null', drover.path, *arguments],
            env=drover.variables(),
            stdin=theirs,
        )
        theirs.close()
        ours.settimeout(SECONDS)
        self.hello = ours.recv(65536)
        self.socket_path = Path(drover.environment["XDG_RUNTIME_DIR"], "drover", f"{name}.sock")
        ours.close()

    def connect(self) -> socket.socket:
        """Connect as a visitor."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(SECONDS)
        connection.connect(str(self.socket_path))
        return connection

    def join(self, name: str) -> socket.socket:
        """Take part as this process."""
        connection = self.connect()
        connection.send(request(JOIN, own_start_time(), name))
        reply, fds, _, _ = socket.recv_fds(connection, 65536, 4)
        for fd in fds:
            os.close(fd)
        assert struct.unpack_from("<I", reply, 16)[0] == 0, reply[152:]
        return connection

    def keep(self, entries: dict[str, str]) -> None:
        """Keep records with these names and descriptions, as this process."""
        with self.join("tester") as connection:
            for sequence, (name, description) in enumerate(entries.items(), start=2):
                connection.send(keep(name, description, sequence))
                reply = connection.recv(65536)
                assert struct.unpack_from("<I", reply, 16)[0] == 0, reply[152:]


@pytest.fixture
def drover(plain, tmp_path):
    """Give the tool with its own directory of sessions; end all that remain."""
    tool = plain.with_settings(XDG_RUNTIME_DIR=str(tmp_path))
    yield tool
    for each in tool.read_json("session", "list")["sessions"]:
        tool.run("session", "end", each["name"], "--force")


def test_no_sessions(drover, tmp_path):
    """The list is empty, and listing creates no directory."""
    done = drover.run("session", "list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "no named sessions\n", "")
    assert drover.read_json("session", "list") == {"sessions": []}
    assert list(tmp_path.iterdir()) == []


def test_list_has_a_row_for_each_session(drover):
    """Sorted by name."""
    keepers = [Keeper(drover, "zebra"), Keeper(drover, "ant")]
    done = drover.run("session", "list")
    heading, *rows = done.stdout.splitlines()
    assert heading.split() == ["NAME", "KEEPER", "PARTICIPANTS", "OBJECTS", "SLABS", "BYTES", "AGE"]
    assert [row.split()[:6] for row in rows] == [
        ["ant", str(keepers[1].process.pid), "0", "0", "0", "0"],
        ["zebra", str(keepers[0].process.pid), "0", "0", "0", "0"],
    ]


def test_list_as_json(drover):
    """Keys are stable and in order."""
    keeper = Keeper(drover, "train", idle_limit=90)
    with keeper.join("tester"):
        (entry,) = drover.read_json("session", "list")["sessions"]
    assert list(entry) == LIST_KEYS
    assert entry["keeper_pid"] == keeper.process.pid
    assert entry["participants"] == 1
    assert entry["idle_limit_seconds"] == 90
    assert 0 <= entry["age_seconds"] < SECONDS
    assert entry["problem"] is None


def test_show_lists_participants_and_slabs(drover):
    """Both by number."""
    keeper = Keeper(drover, "train")
    with keeper.join("tester") as connection, open("/dev/zero", "rb") as slab:
        socket.send_fds(connection, [request(DEPOSIT, 3 * 2**20, "weights", sequence=2)], [slab.fileno()])
        connection.recv(65536)
        text = drover.run("session", "show", "train").stdout
        details = drover.read_json("session", "show", "train")
    assert text.startswith(f"session 'train', kept by process {keeper.process.pid} for ")
    assert "ends after 1 h 0 min without participants" in text
    assert re.search(rf"^1 +{os.getpid()} +opener +present +tester$", text, re.MULTILINE)
    assert re.search(r"^1 +3.0 MiB +weights$", text, re.MULTILINE)
    assert list(details["session"]) == LIST_KEYS
    (participant,) = details["participants"]
    assert participant == {
        "number": 1,
        "incarnation": 1,
        "pid": os.getpid(),
        "name": "tester",
        "state": "present",
        "is_worker": False,
    }
    assert details["slabs"] == [{"id": 1, "label": "weights", "bytes": 3 * 2**20}]


def test_files_of_objects_count_as_slabs(drover):
    """The sum is all memory of the session, described or not."""
    keeper = Keeper(drover, "train")
    with keeper.join("tester") as connection, open("/dev/zero", "rb") as slab:
        socket.send_fds(connection, [create_slab(5 * 2**20, sequence=2)], [slab.fileno()])
        reply, fds, _, _ = socket.recv_fds(connection, 65536, 4)
        for fd in fds:
            os.close(fd)
        assert struct.unpack_from("<I", reply, 16)[0] == 0, reply[152:]
        socket.send_fds(connection, [request(DEPOSIT, 3 * 2**20, "weights", sequence=3)], [slab.fileno()])
        connection.recv(65536)
        text = drover.run("session", "show", "train").stdout
        (entry,) = drover.read_json("session", "list")["sessions"]
    assert "2 slabs of 8.0 MiB" in text
    assert re.search(r"^1 +3.0 MiB +weights$", text, re.MULTILINE)
    assert re.search(r"^- +5.0 MiB +of 1 objects$", text, re.MULTILINE)
    assert (entry["objects"], entry["slabs"], entry["slab_bytes"]) == (1, 2, 8 * 2**20)


def test_show_lists_kept_items(drover):
    """Sorted by name; without items there is no table."""
    keeper = Keeper(drover, "train")
    assert "KEPT" not in drover.run("session", "show", "train").stdout
    assert drover.read_json("session", "show", "train")["kept"] == []
    before = int(time.time())
    keeper.keep({"weights": "float32[1024, 1024] at cuda:0", "bias": "float32[1024] at cuda:0"})
    text = drover.run("session", "show", "train").stdout
    assert re.search(r"^KEPT +BYTES +DESCRIPTION$", text, re.MULTILINE)
    assert re.search(
        r"^bias +0 B +float32\[1024\] at cuda:0\nweights +0 B +float32\[1024, 1024\] at cuda:0$", text, re.MULTILINE
    )
    bias, weights = drover.read_json("session", "show", "train")["kept"]
    assert list(bias) == ["name", "description", "bytes", "leases", "since"]
    assert (bias["name"], weights["name"]) == ("bias", "weights")
    assert (weights["description"], weights["bytes"], weights["leases"]) == ("float32[1024, 1024] at cuda:0", 0, 0)
    assert before <= weights["since"] <= time.time()


def test_drop_removes_one_item(drover):
    """To drop it again is an error that lists the remaining items."""
    keeper = Keeper(drover, "train")
    keeper.keep({"weights": "", "bias": ""})
    done = drover.run("session", "drop", "train", "weights")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [each["name"] for each in drover.read_json("session", "show", "train")["kept"]] == ["bias"]
    again = drover.run("session", "drop", "train", "weights")
    assert again.returncode == 3
    assert "nothing is kept under 'weights'; the session keeps bias" in again.stderr
    unknown = drover.run("session", "drop", "fly", "weights")
    assert unknown.returncode == 3
    assert "this user has no session 'fly'" in unknown.stderr


def test_end_leaves_nothing_behind(drover, tmp_path):
    """Neither a process nor a file, and the name is unknown afterwards."""
    keeper = Keeper(drover, "train", idle_limit=0)
    assert "ends never" in drover.run("session", "show", "train").stdout
    done = drover.run("session", "end", "train")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert keeper.process.wait(SECONDS) == 0
    assert list((tmp_path / "drover").iterdir()) == []
    again = drover.run("session", "end", "train")
    assert again.returncode == 3
    assert "this user has no session 'train'" in again.stderr


def test_end_needs_force_while_the_session_has_participants(drover):
    """Then the participant's connection is closed."""
    keeper = Keeper(drover, "train")
    with keeper.join("tester") as connection:
        refused = drover.run("session", "end", "train")
        assert refused.returncode == 3
        assert "session 'train' has 1 participants" in refused.stderr
        assert "by force" in refused.stderr
        assert drover.run("session", "end", "train", "--force").returncode == 0
        assert connection.recv(65536) == b""
    assert keeper.process.wait(SECONDS) == 0


def test_stopped_keeper_is_listed_with_its_problem(drover):
    """The tool waits for it only briefly, and --force kills it."""
    keeper = Keeper(drover, "stuck")
    keeper.process.send_signal(signal.SIGSTOP)
    done = drover.run("session", "list")
    assert done.returncode == 0
    assert re.search(r"^stuck +\d+ +\? ", done.stdout, re.MULTILINE)
    assert "stuck: the keeper" in done.stdout
    (entry,) = drover.read_json("session", "list")["sessions"]
    assert entry["participants"] is None
    assert "did not answer" in entry["problem"]
    assert drover.run("session", "end", "stuck", "--force").returncode == 0
    assert keeper.process.wait(SECONDS) == -signal.SIGKILL


def test_killed_keeper_is_not_listed(drover, tmp_path):
    """Listing removes its files."""
    keeper = Keeper(drover, "dead")
    keeper.process.kill()
    keeper.process.wait(SECONDS)
    assert (tmp_path / "drover" / "dead.sock").exists()
    assert drover.read_json("session", "list") == {"sessions": []}
    assert list((tmp_path / "drover").iterdir()) == []


def test_second_keeper_of_a_name_gives_up(drover):
    """Its greeting has the reason."""
    first = Keeper(drover, "one")
    second = Keeper(drover, "one")
    assert second.process.wait(SECONDS) == 1
    assert b"already has a keeper" in second.hello
    assert first.process.poll() is None


def test_directory_that_others_may_write_is_refused(drover, tmp_path):
    """Sessions need a private directory."""
    (tmp_path / "drover").mkdir(mode=0o700)
    (tmp_path / "drover").chmod(0o777)
    done = drover.run("session", "list")
    assert done.returncode == 3
    assert "is open to others" in done.stderr
    (tmp_path / "drover").chmod(0o700)


@pytest.mark.parametrize(
    "arguments", [[], ["fly"], ["show"], ["end"], ["list", "x"], ["drop", "x"], ["end", "x", "--json"]], ids=" ".join
)
def test_invalid_arguments_are_wrong_usage(drover, arguments):
    """As everywhere in the tool."""
    done = drover.run("session", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""


def test_invalid_name_is_an_error(drover):
    """The message has the rules for names."""
    done = drover.run("session", "show", "../etc")
    assert done.returncode == 3
    assert "letters, digits" in done.stderr


def test_help_has_examples(drover):
    """As every command has."""
    done = drover.run("session", "--help")
    assert done.returncode == 0
    assert "Examples:\n" in done.stdout
    assert json.dumps(done.stderr) == '""'
