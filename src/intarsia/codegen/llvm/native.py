"""LLVM itself: IR text to objects or assembly, on several threads at once.

llvmlite guards every call by one lock, so its threads take turns. LLVM needs no such lock for separate
contexts: the same library, opened a second time through ctypes, is called without it, each thread with a
context and a target machine of its own. Where these entry points are missing or differ, llvmlite's own way is
used, one at a time.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p

import llvmlite.binding as llvm

from intarsia.kernel.target import Target
from intarsia.support.errors import CodegenError

_ready = threading.Lock()
OPTIONS = ("-enable-misched=false", "-disable-lsr")
PASSES = ("sroa", "dce")
_FUNCTIONS = {
    "LLVMPY_ContextCreate": (c_void_p, []),
    "LLVMPY_ContextDispose": (None, [c_void_p]),
    "LLVMPY_ParseAssembly": (c_void_p, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "LLVMPY_DisposeModule": (None, [c_void_p]),
    "LLVMPY_DisposeString": (None, [c_void_p]),
    "LLVMPY_GetTargetFromTriple": (c_void_p, [c_char_p, POINTER(c_void_p)]),
    "LLVMPY_CreateTargetMachine": (
        c_void_p,
        [c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_char_p, c_char_p, c_int, c_int, c_char_p],
    ),
    "LLVMPY_DisposeTargetMachine": (None, [c_void_p]),
    "LLVMPY_TargetMachineEmitToMemory": (c_void_p, [c_void_p, c_void_p, c_int, POINTER(c_void_p)]),
    "LLVMPY_GetBufferStart": (c_void_p, [c_void_p]),
    "LLVMPY_GetBufferSize": (c_size_t, [c_void_p]),
    "LLVMPY_DisposeMemoryBuffer": (None, [c_void_p]),
    "LLVMPY_CreatePipelineTuningOptions": (c_void_p, []),
    "LLVMPY_DisposePipelineTuningOptions": (None, [c_void_p]),
    "LLVMPY_CreatePassBuilder": (c_void_p, [c_void_p, c_void_p]),
    "LLVMPY_DisposePassBuilder": (None, [c_void_p]),
    "LLVMPY_CreateNewModulePassManager": (c_void_p, []),
    "LLVMPY_DisposeNewModulePassManger": (None, [c_void_p]),
    "LLVMPY_RunNewModulePassManager": (None, [c_void_p, c_void_p, c_void_p]),
    "LLVMPY_module_AddSROAPass": (None, [c_void_p]),
    "LLVMPY_module_AddDCEPass": (None, [c_void_p]),
}


@functools.cache
def initialise() -> None:
    """Once in a process: targets, and two options.

    The machine scheduler hoists broadcasts over multiplications and makes large register tiles spill; without
    it instructions stay in our order. Loop strength reduction finds nothing where addresses are already
    hoisted, and takes up to four fifths of the time.
    """
    with _ready:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        llvm.initialize_native_asmparser()
        for option in OPTIONS:
            llvm.set_option("", option)


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The library through a handle without llvmlite's lock; None if it does not have what is needed."""
    initialise()
    from llvmlite.binding import ffi

    path = getattr(getattr(ffi.lib, "_lib_handle", None), "_name", None)
    if path is None:
        return None
    try:
        lib = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return lib


def emit(ir: str, target: Target, *, assembly: bool = False) -> bytes:
    """The object file (or assembly text) of a module. CodegenError CODE-003 if LLVM refuses it."""
    initialise()
    lib = _library()
    return _emit_llvmlite(ir, target, assembly) if lib is None else _emit_raw(lib, ir, target, assembly)


def _emit_raw(lib: ctypes.CDLL, ir: str, target: Target, assembly: bool) -> bytes:
    message = c_void_p()

    def refuse(what: str) -> CodegenError:
        text = (
            ctypes.string_at(message.value).decode(errors="replace") if message.value else "no reason given"
        )
        if message.value:
            lib.LLVMPY_DisposeString(message)
        return CodegenError("CODE-003", f"LLVM cannot {what}: {text.strip()}")

    described = lib.LLVMPY_GetTargetFromTriple(target.triple.encode(), byref(message))
    if not described:
        raise refuse(f"compile for {target.triple}")
    context = module = machine = options = builder = passes = memory = None
    try:
        context = lib.LLVMPY_ContextCreate()
        module = lib.LLVMPY_ParseAssembly(context, ir.encode(), byref(message))
        if not module:
            raise refuse("read our code")
        machine = lib.LLVMPY_CreateTargetMachine(
            described,
            target.triple.encode(),
            target.cpu.encode(),
            target.features.encode(),
            2,
            b"pic",
            b"small",
            0,
            0,
            b"",
        )
        if not machine:
            raise CodegenError("CODE-003", f"LLVM has no target machine for {target.triple}, {target.cpu}")
        options = lib.LLVMPY_CreatePipelineTuningOptions()
        builder = lib.LLVMPY_CreatePassBuilder(machine, options)
        passes = lib.LLVMPY_CreateNewModulePassManager()
        lib.LLVMPY_module_AddSROAPass(passes)
        lib.LLVMPY_module_AddDCEPass(passes)
        lib.LLVMPY_RunNewModulePassManager(passes, module, builder)
        memory = lib.LLVMPY_TargetMachineEmitToMemory(machine, module, int(not assembly), byref(message))
        if not memory:
            raise refuse("generate code")
        return ctypes.string_at(lib.LLVMPY_GetBufferStart(memory), lib.LLVMPY_GetBufferSize(memory))
    finally:
        for dispose, what in (
            (lib.LLVMPY_DisposeMemoryBuffer, memory),
            (lib.LLVMPY_DisposeNewModulePassManger, passes),
            (lib.LLVMPY_DisposePassBuilder, builder),
            (lib.LLVMPY_DisposePipelineTuningOptions, options),
            (lib.LLVMPY_DisposeModule, module),
            (lib.LLVMPY_DisposeTargetMachine, machine),
            (lib.LLVMPY_ContextDispose, context),
        ):
            if what:
                dispose(what)


def _emit_llvmlite(ir: str, target: Target, assembly: bool) -> bytes:
    try:
        with llvm.parse_assembly(ir, llvm.create_context()) as module:
            described = llvm.Target.from_triple(target.triple)
            machine = described.create_target_machine(
                cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small"
            )
            passes = llvm.create_new_module_pass_manager()
            passes.add_sroa_pass()
            passes.add_dead_code_elimination_pass()
            passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
            return machine.emit_assembly(module).encode() if assembly else machine.emit_object(module)
    except RuntimeError as e:
        raise CodegenError("CODE-003", f"LLVM refuses our code: {e}") from e


@functools.cache
def version() -> str:
    """What decides LLVM's output besides its input, for cache keys."""
    import llvmlite

    lib = f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"
    return " ".join((lib, *OPTIONS, *PASSES))
