"""Which processor: the one we run on, or one that is named."""

from __future__ import annotations

import functools
import os
import platform
from dataclasses import replace
from pathlib import Path

from intarsia.kernel.target import Target
from intarsia.support.errors import UnsupportedError

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512dq")
NAMED = {
    "x86-64": Target(cpu="x86-64", features="+sse2"),
    "x86-64-v2": Target(cpu="x86-64-v2", features="+sse4.2"),
    "x86-64-v3": Target(cpu="x86-64-v3", features="+avx2,+fma,+f16c", vector_bits=256, fma=True),
    "x86-64-v4": Target(
        cpu="x86-64-v4",
        features="+avx512f,+avx512bw,+avx512vl,+avx512dq,+fma,+f16c",
        vector_bits=512,
        registers=32,
        l2=1 << 20,
        fma=True,
    ),
    "aarch64": Target(
        triple="aarch64-unknown-linux-gnu", cpu="generic", features="+neon", registers=32, fma=True
    ),
}


def target_from_name(name: str, cores: int = 1) -> Target:
    """'host' or one of `NAMED`; UnsupportedError CODE-004 for another name."""
    if name == "host":
        return host_target(cores)
    if name not in NAMED:
        raise UnsupportedError(
            "CODE-004", f"there is no target {name}", remedy=f"use one of host, {', '.join(NAMED)}"
        )
    return replace(NAMED[name], cores=cores)


def host_target(cores: int | None = None) -> Target:
    """The processor we run on. cores: hardware threads to use; default: those this process may run on."""
    return replace(_host(), cores=available_cores() if cores is None else max(1, cores))


def available_cores() -> int:
    """Hardware threads that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


@functools.cache
def _host() -> Target:
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    caches = _cache_sizes()
    sizes = {f"l{level}": size for level, size in caches.items() if level in (1, 2, 3)}
    try:
        flags = {k for k, on in llvm.get_host_cpu_features().items() if on}
    except RuntimeError:  # LLVM cannot tell on this processor
        flags = set()
    features = ",".join(f"+{k}" for k in sorted(flags))
    cpu = llvm.get_host_cpu_name()
    if platform.machine() in ("aarch64", "arm64"):
        return Target(triple=triple, cpu=cpu, features=features or "+neon", registers=32, fma=True, **sizes)
    wide = all(f in flags for f in _AVX512)
    bits = 512 if wide else 256 if "avx2" in flags else 128
    registers = 32 if wide else 16
    return Target(
        triple=triple,
        cpu=cpu,
        features=features,
        vector_bits=bits,
        registers=registers,
        fma="fma" in flags,
        **sizes,
    )


def _cache_sizes() -> dict[int, int]:
    """Data cache sizes in bytes by level, from Linux; empty where it does not say."""
    found: dict[int, int] = {}
    for index in sorted(_CACHES.glob("index*")) if _CACHES.is_dir() else []:
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        unit = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
        digits = text[:-1] if unit else text
        if digits.isdigit():
            found[level] = int(digits) << unit
    return found
