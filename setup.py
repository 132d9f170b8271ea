"""The build, as pyproject.toml describes it, from an empty folder.

setuptools copies modules into build/lib and never removes any: a module that is gone from src, such as a package that
has become a module, would stay in every later wheel and hide its successor.
"""

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class FreshBuild(build_py):
    """Copies the modules into a folder that holds nothing else."""

    def run(self):
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": FreshBuild})
