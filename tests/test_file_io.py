"""Users' files: regular ones are read, up to a limit; devices and pipes are written to, never replaced."""

import errno
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from perflex.errors import FileFormatError
from perflex.file_io import is_on_local_disk, read_bytes, read_text, require_writable, writing


def device(path, minor):
    """Make a node of our own like /dev/null (3) or /dev/full (7)."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        path.open("wb").close()
    except OSError as error:
        pytest.skip(f"no devices can be made here: {error}")
    return path


def test_reading(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfn\xc3\xa4he")
    assert read_bytes(path) == b"\xef\xbb\xbfn\xc3\xa4he"
    assert read_text(path) == "nähe"
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_text(link) == "nähe"


def test_a_limit_holds_while_reading(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(101))
    assert len(read_bytes(path, most=101)) == 101
    with pytest.raises(FileFormatError, match="larger than 100 bytes"):
        read_bytes(path, most=100)


@pytest.mark.parametrize("what", ["pipe", "folder", "/dev/zero", "/dev/urandom", "socket", "absent"])
def test_what_is_no_regular_file_is_not_read(what, tmp_path, monkeypatch):
    # A socket's name must be short enough for its address.
    monkeypatch.chdir(tmp_path)
    path, words = Path("input"), r"it is a (folder|device, a pipe or a socket); name a regular file"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("input")
    elif what != "absent":
        path.symlink_to(what)
    for name in (path,) if what != "absent" else (path, "a\0b", "x" * 300):
        with pytest.raises(FileFormatError, match="cannot read" if what == "absent" else words):
            read_bytes(Path(name))


def test_utf_16_is_no_text(tmp_path):
    path = tmp_path / "file"
    path.write_text("schema: perflex-scop/2", encoding="utf-16")
    with pytest.raises(FileFormatError, match="byte 0 is no UTF-8"):
        read_text(path)


def test_writing_is_one_step(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o640)

    def interrupted():
        with writing(path) as stream:
            stream.write("half")
            stream.flush()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "before"
    with writing(path) as stream:
        stream.write("after\n")
        assert path.read_text() == "before"
    assert path.read_bytes() == b"after\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    # A link stays a link.
    link = tmp_path / "link"
    link.symlink_to(path)
    with writing(link, binary=True) as stream:
        stream.write(b"through a link")
    assert link.is_symlink()
    assert path.read_bytes() == b"through a link"


@pytest.mark.machine
def test_a_device_is_written_to_and_stays(tmp_path):
    null = device(tmp_path / "null", 3)
    link = tmp_path / "link"
    link.symlink_to(null)
    for path in (null, link):
        require_writable(path)
        with writing(path) as stream:
            stream.write("gone")
    assert stat.S_ISCHR(null.lstat().st_mode)
    assert link.is_symlink()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link", "null"]


@pytest.mark.machine
def test_a_full_device_says_so(tmp_path):
    full = device(tmp_path / "full", 7)
    with pytest.raises(OSError, match="No space left") as caught, writing(full) as stream:
        stream.write("too much")
    assert caught.value.errno == errno.ENOSPC
    assert stat.S_ISCHR(full.lstat().st_mode)


@pytest.mark.machine
def test_a_pipe_is_written_to_and_not_waited_for(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="No such device"), writing(path) as stream:
        stream.write("nobody reads")
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    while True:
        try:
            with writing(path) as stream:
                stream.write("somebody reads")
            break
        except OSError as error:
            # The reader has not come yet.
            if error.errno != errno.ENXIO:
                raise
    reader.join(10)
    assert read == ["somebody reads"]
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.parametrize(
    ("place", "local"),
    [("/var/a", True), ("/home/who/a", False), ("/home/who/my disk/a", True), ("/scratch/a", False), ("/odd/a", False)],
)
def test_which_files_no_other_host_can_use(tmp_path, place, local):
    mounts = tmp_path / "mountinfo"
    lines = [
        "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw",
        "28 27 8:1 / /home rw - xfs /dev/sda1 rw",
        "29 27 0:21 / /home rw - nfs4 server:/home rw",
        r"30 29 8:2 / /home/who/my\040disk rw shared:3 master:2 - btrfs /dev/sdb rw",
        "31 27 0:22 / /scratch rw - lustre mds:/scratch rw",
        "32 27 0:23 / /odd rw - afileserver x rw",
    ]
    mounts.write_text("\n".join(lines))
    assert is_on_local_disk(Path(place), mounts) is local
    assert not is_on_local_disk(Path(place), tmp_path / "nothing")
