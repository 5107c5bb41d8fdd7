"""The devices whose compilers are asked, and how each is made to appear without its hardware."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    name: str
    leg: int  # 1: this machine's Mesa; 2: that of the Debian 13 root
    driver: str  # of the ICD file
    environment: tuple
    classes: tuple  # of suite.tsv, the best last
    label: str
    half_matrices: tuple = ()  # KHR cooperative matrices, f16 with f32 sums: M, N, K
    byte_matrices: tuple = ()  # of 8-bit integers


def shim(name):
    return ("LD_PRELOAD", f"lib{name}_noop_drm_shim.so")


NVIDIA = (shim("nouveau"), ("NVK_I_WANT_A_BROKEN_VULKAN_DRIVER", "1"))
NVIDIA_MATRICES = (((16, 16, 16), (16, 8, 16), (16, 8, 8)), ((16, 8, 32), (8, 8, 16)))
AMD_MATRICES = (((16, 16, 16),), ((16, 16, 16),))
CHIPS = [
    Chip("vega10", 1, "radeon", (("RADV_FORCE_FAMILY", "vega10"),), ("any", "wave64"), "AMD Vega 10 (GCN 5)"),
    Chip("navi21", 1, "radeon", (("RADV_FORCE_FAMILY", "navi21"),), ("any", "dot4"), "AMD Navi 21 (RDNA 2)"),
    Chip(
        "gfx1100",
        1,
        "radeon",
        (("RADV_FORCE_FAMILY", "gfx1100"),),
        ("any", "dot4"),
        "AMD Navi 31 (RDNA 3), the older Mesa",
    ),
    Chip(
        "turing",
        2,
        "nouveau",
        NVIDIA + (("NOUVEAU_CHIPSET", "162"),),
        ("any", "dot4", "matrix"),
        "NVIDIA Turing",
        *NVIDIA_MATRICES,
    ),
    Chip(
        "ampere",
        2,
        "nouveau",
        NVIDIA + (("NOUVEAU_CHIPSET", "172"),),
        ("any", "dot4", "matrix"),
        "NVIDIA Ampere",
        *NVIDIA_MATRICES,
    ),
    Chip("m1", 2, "asahi", (shim("asahi"), ("AGX_MESA_DEBUG", "shaders")), ("any",), "Apple M1"),
    Chip(
        "adreno730", 2, "freedreno", (shim("freedreno"), ("FD_GPU_ID", "730")), ("any", "wave64"), "Qualcomm Adreno 730"
    ),
    Chip(
        "navi31",
        2,
        "radeon",
        (shim("amdgpu"), ("AMDGPU_GPU_ID", "navi31")),
        ("any", "dot4", "matrix"),
        "AMD Navi 31 (RDNA 3)",
        *AMD_MATRICES,
    ),
    Chip(
        "gfx1201",
        2,
        "radeon",
        (shim("amdgpu"), ("AMDGPU_GPU_ID", "gfx1201")),
        ("any", "dot4", "matrix"),
        "AMD GFX1201 (RDNA 4)",
        *AMD_MATRICES,
    ),
]


def environment(chip, icd):
    """What a process needs to see this device alone; `icd`: the file that names its driver."""
    return {
        **dict(chip.environment),
        "VK_DRIVER_FILES": icd,
        "VK_ICD_FILENAMES": icd,
        "MESA_SHADER_CACHE_DISABLE": "true",
        "TESSERA_DEVICE": "0",
        "TESSERA_CACHE": "",
        "TESSERA_VALIDATION": "",
    }
