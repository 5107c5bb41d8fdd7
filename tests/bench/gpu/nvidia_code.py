"""What NVIDIA's Vulkan driver compiles shaders to. It tells no text through VK_KHR_pipeline_executable_properties, but
keeps the code in its cache of shaders:

    # where the GPU is; an empty folder, a module after another
    __GL_SHADER_DISK_CACHE=1 __GL_SHADER_DISK_CACHE_PATH=CACHE/ ./bench_gpu --out X.json MODULE.spv
    # there or here: OUT/0.sass and so on, in that order
    python3 nvidia_code.py CACHE OUT

It needs zstd and nvdisasm (of CUDA's toolkit, or nvidia-cuda-nvdisasm of the package index: --nvdisasm FILE). The
cache's form is known from driver 580.159 alone: pieces that zstd packs, each with a header "NVDANVVM", "NVuc" and a
table of sections, of which that of kind 1 is machine code."""

import argparse
import pathlib
import struct
import subprocess
import sys

ZSTD, HEADER, TABLE = b"\x28\xb5\x2f\xfd", b"NVDANVVMNVuc", 0x180


def pieces(data):
    """What zstd unpacks, from each place where it could begin."""
    at = data.find(ZSTD)
    while at >= 0:
        unpacked = subprocess.run(
            ["zstd", "-d", "-q", "-c"], input=data[at:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        ).stdout
        if unpacked.startswith(HEADER):
            yield unpacked[8:]
        at = data.find(ZSTD, at + 4)


def code(piece):
    """The machine code in a piece: the section of kind 1 (kind, bytes, place). Instructions have 16 bytes, and code is
    filled up to 128."""
    for entry in range(0x20, TABLE, 4):
        kind, size, place = struct.unpack_from("<III", piece, entry)
        if kind == 1 and size >= 512 and size % 128 == 0 and 0x100 <= place and place + size <= len(piece):
            return piece[place : place + size]
    return None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cache", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--nvdisasm", default="nvdisasm")
    p.add_argument("--chip", default="SM90", help="as nvdisasm --binary names it (SM90)")
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    found = [c for f in sorted(a.cache.rglob("*.bin")) for c in map(code, pieces(f.read_bytes())) if c]
    for n, c in enumerate(found):
        (a.out / f"{n}.bin").write_bytes(c)
        said = subprocess.run(
            [a.nvdisasm, "--binary", a.chip, str(a.out / f"{n}.bin")], stdout=subprocess.PIPE, check=True, text=True
        ).stdout
        (a.out / f"{n}.sass").write_text(said)
        print(f"{n}.sass: {len(c) // 16} instructions")
    if not found:
        sys.exit(f"nvidia_code.py: no machine code in {a.cache}: another driver's form, or an empty cache")


if __name__ == "__main__":
    main()
