"""Provide a small file system that no other process sees, and that can be full."""

import ctypes
import os
import subprocess
from pathlib import Path

NEW_MOUNTS, NEW_USERS = 0x00020000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER of Linux
PAGE = 4096


def own_mounts() -> str:
    """Give this process mounts of its own. Return why that fails, or an empty string.

    Only this process and its children see the mounts, which end with them. A user who is not root becomes
    root of a user namespace. This has to happen before a thread is started.
    """
    unshare = getattr(ctypes.CDLL(None, use_errno=True), "unshare", None)
    if unshare is None:
        return "this system has no mount namespaces"
    user, group = os.getuid(), os.getgid()
    if unshare(NEW_MOUNTS):
        if unshare(NEW_MOUNTS | NEW_USERS):
            return f"no mount namespace: {os.strerror(ctypes.get_errno())}"
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    done = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, text=True)
    return done.stderr.strip()


class Disk:
    """A file system in memory. A file in it can take all free pages but a few."""

    def __init__(self, folder: Path, pages: int):
        folder.mkdir()
        self.folder, self.pages = folder, pages
        options = f"size={pages * PAGE},mode=700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
        self.ballast = os.open(folder / "ballast", os.O_CREAT | os.O_RDWR, 0o600)

    def leave(self, pages: int) -> None:
        """Take pages or give them back, until `pages` are free."""
        taken, free = os.fstat(self.ballast).st_blocks * 512 // PAGE, os.statvfs(self.folder).f_bavail
        size = taken + free - pages
        os.ftruncate(self.ballast, max(size, 0) * PAGE)
        if size > 0:
            try:
                os.posix_fallocate(self.ballast, 0, size * PAGE)
            except OSError:  # the server took some meanwhile
                self.leave(pages)

    def clear(self) -> None:
        """Give back all pages."""
        os.ftruncate(self.ballast, 0)
