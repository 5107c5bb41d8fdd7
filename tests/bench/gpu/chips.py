"""The devices whose compilers are asked, and how each is made to appear without its hardware."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    name: str
    leg: int            # 1: this machine's Mesa; 2: that of the Debian 13 root
    driver: str         # of the ICD file
    environment: tuple
    classes: tuple      # of suite.tsv, the best last
    label: str


def shim(name):
    return ("LD_PRELOAD", f"lib{name}_noop_drm_shim.so")


NVIDIA = (shim("nouveau"), ("NVK_I_WANT_A_BROKEN_VULKAN_DRIVER", "1"))
CHIPS = [
    Chip("vega10", 1, "radeon", (("RADV_FORCE_FAMILY", "vega10"),), ("any", "wave64"), "AMD Vega 10 (GCN 5)"),
    Chip("navi21", 1, "radeon", (("RADV_FORCE_FAMILY", "navi21"),), ("any",), "AMD Navi 21 (RDNA 2)"),
    Chip("gfx1100", 1, "radeon", (("RADV_FORCE_FAMILY", "gfx1100"),), ("any",), "AMD Navi 31 (RDNA 3), the older Mesa"),
    Chip("turing", 2, "nouveau", NVIDIA + (("NOUVEAU_CHIPSET", "162"),), ("any", "matrix"), "NVIDIA Turing"),
    Chip("ampere", 2, "nouveau", NVIDIA + (("NOUVEAU_CHIPSET", "172"),), ("any", "matrix"), "NVIDIA Ampere"),
    Chip("m1", 2, "asahi", (shim("asahi"), ("AGX_MESA_DEBUG", "shaders")), ("any",), "Apple M1"),
    Chip("adreno730", 2, "freedreno", (shim("freedreno"), ("FD_GPU_ID", "730")), ("any", "wave64"), "Qualcomm Adreno 730"),
    Chip("navi31", 2, "radeon", (shim("amdgpu"), ("AMDGPU_GPU_ID", "navi31")), ("any", "matrix"), "AMD Navi 31 (RDNA 3)"),
    Chip("gfx1201", 2, "radeon", (shim("amdgpu"), ("AMDGPU_GPU_ID", "gfx1201")), ("any", "matrix"), "AMD GFX1201 (RDNA 4)"),
]


def environment(chip, icd):
    """What a process needs to see this device alone; `icd`: the file that names its driver."""
    return {**dict(chip.environment), "VK_DRIVER_FILES": icd, "VK_ICD_FILENAMES": icd, "MESA_SHADER_CACHE_DISABLE": "true",
            "TESSERA_DEVICE": "0", "TESSERA_CACHE": "", "TESSERA_VALIDATION": ""}
