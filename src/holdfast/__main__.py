"""`python -m holdfast`, and the command `holdfast`: the command line.

Ctrl-C ends a command with exit code 130 and no word, also while it is being loaded.
"""

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from importlib.util import MAGIC_NUMBER
    from marshal import loads
    from signal import SIGINT, default_int_handler, getsignal, signal
    from types import CodeType, ModuleType

    def _fix_co_filename(code: CodeType, path: str, /) -> None: ...

else:
    from _frozen_importlib import ModuleSpec
    from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader
    from _imp import _fix_co_filename
    from _signal import SIGINT, default_int_handler, getsignal, signal
    from marshal import loads

if getsignal(SIGINT) is default_int_handler:  # not if it is ignored, as in the background of a shell
    signal(SIGINT, lambda *_: os._exit(130))


class Module(SourceFileLoader):
    """Finds and loads a module of this package where it must be; a command is through a twentieth sooner.

    The import system lists whole folders and tries six endings, in many steps of Python, for each of seventy modules.
    Whatever is not as usual (no bytecode, or of another source; an archive; no file) is left to it.
    """

    source: os.stat_result  # of the file

    @classmethod
    def find_spec(cls, name: str, path: "Sequence[str] | None", _: "ModuleType | None" = None) -> ModuleSpec | None:
        """The place of a module whose package lies at `path`; None if the import system must look for it."""
        if not name.startswith("holdfast.") or not path:
            return None
        base = f"{path[0]}/{name.rpartition('.')[2]}"
        for file, parts in ((f"{base}.py", None), (f"{base}/__init__.py", [base])):
            try:
                source = os.stat(file)
            except OSError:
                continue
            loader = cls(name, file)
            loader.source = source
            spec = ModuleSpec(name, loader, origin=file, is_package=parts is not None)
            spec.submodule_search_locations = parts
            spec.cached = loader.bytecode()
            spec.has_location = True
            return spec
        return None

    def bytecode(self) -> str:
        """The file of the bytecode, by the rule of the import system."""
        folder, _, name = self.path.rpartition("/")
        return f"{folder}/__pycache__/{name[:-3]}.{sys.implementation.cache_tag}.pyc"

    def get_code(self, fullname: str) -> "CodeType | None":
        """The code of the module: the bytecode, if it was made from this very source."""
        try:
            file = os.open(self.bytecode(), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return super().get_code(fullname)
        try:
            data = os.read(file, os.fstat(file).st_size)
        finally:
            os.close(file)
        stamp = b"".join(
            (int(each) & 0xFFFFFFFF).to_bytes(4, "little") for each in (0, self.source.st_mtime, self.source.st_size)
        )
        if data[:16] != MAGIC_NUMBER + stamp:
            return super().get_code(fullname)
        code: CodeType = loads(memoryview(data)[16:])
        _fix_co_filename(code, self.path)
        return code


if not sys.flags.optimize and sys.pycache_prefix is None:  # else the bytecode lies elsewhere
    sys.meta_path.insert(0, Module)

from holdfast.faces.cli import start  # noqa: E402  # loading it takes the time

__all__ = ["start"]

if __name__ == "__main__":
    start()
