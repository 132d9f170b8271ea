"""The build, as pyproject.toml describes it, from an empty folder and with the same bytes from the same sources.

setuptools copies modules into build/lib and never removes any: a module that is gone from src, such as a package that
has become a module, would stay in every later wheel and hide its successor. It packs the source archive with the times,
owners and modes that the files happen to have; with SOURCE_DATE_EPOCH set, ours are the same on every machine. For a
wheel setuptools sees to that by itself.
"""

import gzip
import os
import shutil
import tarfile

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist


class FreshBuild(build_py):
    """Copies the modules into a folder that holds nothing else."""

    def run(self):
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class SteadyArchive(sdist):
    """Packs the sources in order, at one time and without owners, if SOURCE_DATE_EPOCH says which time."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, **owner):
        when = os.environ.get("SOURCE_DATE_EPOCH")
        if when is None or format != "gztar":
            return super().make_archive(base_name, format, root_dir, base_dir, **owner)

        def plain(entry):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = int(when), 0, 0, "", ""
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            return entry

        with (
            open(f"{base_name}.tar.gz", "wb") as file,
            gzip.GzipFile("", "wb", 9, file, mtime=int(when)) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            archive.add(base_dir, filter=plain)  # in the order of names
        return file.name


setup(cmdclass={"build_py": FreshBuild, "sdist": SteadyArchive})
