"""Compiles CUDA sources where there is no GPU, as CuPy does where there is one."""

import ctypes
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

ARCH = "compute_80"  # the oldest on which the others' instructions are there too


def ptx_of(text: str, *, folder: Path) -> str:
    """By NVRTC, or by nvcc; skips the test where neither is installed."""
    if (library := nvrtc()) is not None:
        return by_nvrtc(library, text)
    if (nvcc := shutil.which("nvcc")) is not None:
        (folder / "kernels.cu").write_text(text)
        command = [nvcc, "-ptx", "-ftz=true", f"-arch={ARCH}", "kernels.cu"]
        subprocess.run(command, cwd=folder, check=True, timeout=60)
        return (folder / "kernels.ptx").read_text()
    pytest.skip("neither NVRTC (nvidia-cuda-nvrtc) nor nvcc is installed")


def by_nvrtc(library: Path, text: str) -> str:
    rtc = ctypes.CDLL(str(library))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert rtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture={ARCH}".encode(), b"-ftz=true")  # as CuPy does
    assert rtc.nvrtcCompileProgram(program, 2, options) == 0
    assert rtc.nvrtcGetPTXSize(program, ctypes.byref(size)) == 0
    ptx = ctypes.create_string_buffer(size.value)
    assert rtc.nvrtcGetPTX(program, ptx) == 0
    return ptx.value.decode()


def nvrtc() -> Path | None:
    found = find_spec("nvidia")
    places = found.submodule_search_locations if found is not None and found.submodule_search_locations else []
    return next((so for place in places for so in sorted(Path(place).rglob("libnvrtc.so.*"))), None)
