"""Places: the mount table is read as the kernel writes it, and only remote or shared file systems are refused."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path, PurePosixPath

import pytest

from holdfast import filesystem as filesystem
from holdfast.errors import Unsupported
from holdfast.filesystem import check_place, filesystem_of, refusal

TABLE = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 0:30 / /home rw shared:2 master:1 - nfs4 server:/export/home rw,vers=4.2,addr=10.0.0.2
31 30 8:1 / /home/local rw - xfs /dev/sda1 rw
32 27 0:31 / /mnt/c rw,noatime - 9p C:\134 rw,aname=drvfs;path=C:\134;uid=1000,trans=fd
33 27 0:32 / /mnt/my\040disk rw - cifs //nas/my\040disk rw
34 27 0:33 / /mnt/back\134040slash rw - fuse.sshfs host: rw
35 27 0:34 / /auto rw - autofs systemd-1 rw
36 35 0:35 / /auto rw - nfs server:/auto rw
37 27 0:36 / /cover rw - nfs server:/cover rw
38 37 8:2 / /cover rw - ext4 /dev/sdb1 rw
39 27 0:37 / /mnt/tab\011new\012line rw - smb3 //nas/x rw

a line that is none
40 27 - broken
"""

LINE = "1 0 8:1 / {} rw - {} source rw\n"


@pytest.mark.parametrize(
    ("path", "mount", "fs_type"),
    [
        ("/", "/", "ext4"),
        ("/homework", "/", "ext4"),
        ("/home", "/home", "nfs4"),
        ("/home/ann/store", "/home", "nfs4"),
        ("/home/local/store", "/home/local", "xfs"),
        ("/home/locally", "/home", "nfs4"),
        ("/mnt/c/Users", "/mnt/c", "9p"),
        ("/mnt/my disk/x", "/mnt/my disk", "cifs"),
        ("/mnt/my", "/", "ext4"),
        (r"/mnt/back\040slash/x", r"/mnt/back\040slash", "fuse.sshfs"),
        ("/auto/x", "/auto", "nfs"),
        ("/cover/x", "/cover", "ext4"),
        ("/mnt/tab\tnew\nline/x", "/mnt/tab\tnew\nline", "smb3"),
    ],
)
def test_the_longest_and_last_mount_that_holds_the_path_is_found(path: str, mount: str, fs_type: str) -> None:
    assert filesystem_of(PurePosixPath(path), TABLE) == (mount, fs_type)


@pytest.mark.parametrize("table", ["", "nonsense", "1 2 3 - x", LINE.format("/else", "nfs")])
def test_a_table_without_the_path_gives_nothing(table: str) -> None:
    assert filesystem_of("/home/x", table) is None


REFUSED = """nfs nfs4 cifs smb3 smbfs 9p afs ceph glusterfs fuse.glusterfs lustre beegfs fuse.sshfs fuse.s3fs
fuse.rclone davfs ncpfs gpfs ocfs2 gfs2 afpfs webdav virtiofs fuse.virtiofs drvfs vboxsf fuse.vmhgfs-fuse NFS"""
ACCEPTED = """ext4 ext3 xfs btrfs zfs tmpfs overlay apfs hfs f2fs bcachefs fuseblk fuse fuse.ntfs-3g exfat ramfs nfsd
unheard-of"""


@pytest.mark.parametrize("fs_type", REFUSED.split())
def test_remote_and_shared_file_systems_are_refused(fs_type: str) -> None:
    assert refusal(fs_type)


@pytest.mark.parametrize("fs_type", ACCEPTED.split())
def test_local_and_unknown_file_systems_are_not_refused(fs_type: str) -> None:
    assert not refusal(fs_type)


def use_table(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    monkeypatch.setattr(filesystem, "_mount_of", lambda path, platform: filesystem_of(path, table))


def test_the_refusal_names_the_mount_the_type_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_table(monkeypatch, LINE.format("/", "ext4") + LINE.format(tmp_path.resolve(), "nfs4"))
    with pytest.raises(Unsupported) as caught:
        check_place(tmp_path / "not" / "there" / "yet")
    assert str(tmp_path.resolve()) in caught.value.message
    assert "nfs4" in caught.value.message
    assert "local disk" in caught.value.hint
    assert (caught.value.mount, caught.value.fs_type) == (str(tmp_path.resolve()), "nfs4")
    assert not (tmp_path / "not").exists()
    check_place(tmp_path.parent)


def test_a_link_is_judged_by_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = tmp_path.resolve() / "remote"
    remote.mkdir()
    link = tmp_path / "link"
    link.symlink_to(remote)
    use_table(monkeypatch, LINE.format("/", "ext4") + LINE.format(remote, "cifs"))
    with pytest.raises(Unsupported, match="cifs"):
        check_place(link / "store")


def test_a_folder_for_tests_is_accepted(tmp_path: Path) -> None:
    check_place(tmp_path)
    check_place(tmp_path / "missing")
    check_place(Path("relative"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads the mount table of Linux")
def test_the_table_of_this_machine_is_understood(tmp_path: Path) -> None:
    found = filesystem._mount_of("/proc/self", "linux")
    assert found == ("/proc", "proc")
    assert filesystem._mount_of(str(tmp_path), "linux") is not None


def test_what_cannot_be_judged_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert filesystem._mount_of(str(tmp_path), "win32") is None

    def unreadable(path: str, platform: str) -> None:
        raise PermissionError("no /proc here")

    monkeypatch.setattr(filesystem, "_mount_of", unreadable)
    check_place(tmp_path)


def test_a_link_that_leads_to_itself_is_left_to_the_opener(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    check_place(loop / "store")


def test_the_struct_of_macos_is_read_at_its_offsets() -> None:
    head = struct.pack("=IiQQQQQ8sIIII", 4096, 1 << 20, 1, 1, 1, 1, 1, b"", 501, 26, 0, 0)
    raw = head + struct.pack("16s1024s1024s", b"smbfs", os.fsencode("/Volumes/Büro"), b"//ann@nas/office") + bytes(40)
    assert len(head) == 72
    assert filesystem._parse_statfs(raw) == ("/Volumes/Büro", "smbfs")


@pytest.mark.skipif(sys.platform != "darwin", reason="calls statfs of macOS")
def test_a_missing_folder_on_macos_is_judged_by_its_parent(tmp_path: Path) -> None:
    found = filesystem._mount_of(str(tmp_path.resolve() / "not" / "there"), "darwin")
    assert found is not None
    assert found[0].startswith("/")
    assert not refusal(found[1])
