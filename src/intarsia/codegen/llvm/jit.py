"""Objects from IR (cached, in parallel) and their loading into this process."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import llvmlite.binding as llvm

from intarsia._version import __version__
from intarsia.codegen.llvm import native
from intarsia.codegen.llvm.host import available_cores
from intarsia.kernel.target import Target
from intarsia.support.cache import key_of, object_cache
from intarsia.support.errors import CodegenError


def compile_objects(
    irs: Iterable[tuple[str, str]], target: Target, *, progress: Callable[[str], None] | None = None
) -> list[bytes]:
    """An object file for each (name, IR text), in order; equal texts are compiled once.

    irs may be a generator: LLVM starts on the first texts while the others are still being written.
    progress: called with a module's name when it is ready, from any thread.
    CodegenError CODE-003 if LLVM refuses one.
    """
    cache = object_cache()
    setting = f"{target.triple}|{target.cpu}|{target.features}"

    def one(key: str, name: str, ir: str) -> bytes:
        data = cache.get(key)
        if data is None:
            data = native.emit(ir, target)
            cache.put(key, data)
        if progress is not None:
            progress(name)
        return data

    native.initialise()
    keys: list[str] = []
    futures: dict[str, Future[bytes]] = {}
    with ThreadPoolExecutor(available_cores(), thread_name_prefix="intarsia-compile") as pool:
        try:
            for name, ir in irs:
                key = key_of(ir, setting, native.version(), __version__)
                keys.append(key)
                if key not in futures:
                    futures[key] = pool.submit(one, key, name, ir)
            return [futures[key].result() for key in keys]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def assembly(ir: str, target: Target) -> str:
    """The assembly text of a module."""
    return native.emit(ir, target, assembly=True).decode()


_count = itertools.count()
_linking = threading.RLock()  # the collector may close a library while this thread links another
_linker: llvm.LLJIT | None = None
_linker_process = 0


def _jit():
    """The process's linker. A forked child makes its own."""
    global _linker, _linker_process
    if _linker is None or _linker_process != os.getpid():
        native.initialise()
        machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
            codemodel="small", jit=True
        )
        _linker, _linker_process = llvm.create_lljit_compiler(machine, suppress_errors=True), os.getpid()
    return _linker


class Library:
    """Objects linked into this process. Addresses hold until `close` or until the library is collected.

    symbols: names that can be asked for; imports: addresses of names that the objects need besides libc.
    """

    def __init__(
        self, objects: Iterable[bytes], symbols: Iterable[str], imports: dict[str, int] | None = None
    ):
        self._symbols = frozenset(symbols)
        builder = llvm.JITLibraryBuilder()
        for data in objects:
            builder.add_object_img(data)
        for name in sorted(self._symbols):
            builder.export_symbol(name)
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        _load_math()
        builder.add_current_process()
        with _linking:
            try:
                self._tracker = builder.link(_jit(), f"intarsia.{next(_count)}")
            except RuntimeError as e:
                raise CodegenError("CODE-005", f"machine code cannot be linked: {e}") from e

    def address(self, symbol: str) -> int:
        """Where `symbol` is; KeyError if it was not named at construction."""
        if self._tracker is None:
            raise ValueError("the library is closed")
        return self._tracker[symbol]

    def close(self) -> None:
        """Unload the code. Calling into it afterwards is an error that nothing can catch."""
        tracker, self._tracker = getattr(self, "_tracker", None), None
        if tracker is not None:
            with _linking:
                tracker.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


@functools.cache
def _load_math() -> None:
    """Make the C mathematical library's names known to the linker (LLVM itself does not bring them in)."""
    for name in ("libm.so.6", "libpthread.so.0"):
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:  # part of libc there
            continue
