"""Tests of analyse.py on small programs written for them, in the form in which each driver prints its own. The last
line is "N passed, N failed"."""

import sys
import traceback

import analyse
import chips
import measure
import page

# A loop that loads 16 bytes, keeps 4 of them in shared memory, reads 8 back and multiplies and adds twice, in the
# assembly of RDNA.
ACO = """BB0:
	s_load_b64 s[0:1], s[2:3], null                             ; f4040001 f8000000
	v_mov_b32_e32 v9, 0                                         ; 7e120280
BB1:
	v_cmp_gt_u32_e32 vcc, s4, v9                                ; 7d980804
	s_cbranch_vccz BB4                                          ; bfa30009
BB2:
	global_load_b128 v[0:3], v9, s[0:1]                         ; dc5e0000 00000009
	s_waitcnt vmcnt(0)                                          ; bf8903f7
	ds_store_b32 v8, v0                                         ; d8340000 00000008
	s_barrier                                                   ; bfbd0000
	ds_load_2addr_b32 v[4:5], v8 offset1:1                      ; d8dc0100 04000008
	v_fmac_f32_e32 v6, v4, v1                                   ; 560c0304
	v_dual_fmac_f32 v7, v5, v2 :: v_dual_mov_b32 v1, 0          ; c8000000 00000000
	v_add_nc_u32_e32 v9, 16, v9                                 ; 4a121290
	s_branch BB1                                                ; bfa0fff0
BB4:
	global_store_b64 v9, v[6:7], s[0:1]                         ; dc6e0000 00000609
	s_endpgm                                                    ; bfb00000
"""

NAK = """block.u 0 L0 [] -> {
      r0     = s2r sr[0x0]                               // delay=1 wr:0
      r9     = mov rZ                                    // delay=1
} -> [1]
block 1 L1 [0, 3] -> {
      r4..8  = ld.global.a64.constant.b128 [r2..4], pT   // delay=1 wr:1
               st.shared.strong.cta.b32 [r8] r4          // delay=1 wt=000010
               bar.sync                                  // delay=6 yld
      r10..12 = ld.shared.strong.cta.b64 [r8+0x4], pT    // delay=2 wr:0
      r16    = ffma.ftz r10 r5 r16                       // delay=1
      r17    = hfma2 r11 r6 r17                          // delay=1
      r9     = iadd3 r9 0x10 rZ                          // delay=5
      p0     = isetp.lt.u32 r9 c[0x0][0x710]             // delay=13
               bra !p0 L3                                // delay=1
} -> [2, 3]
block 2 L2 [1] -> {
               st.global.a64.strong.gpu.b64 [r2..4] r16..18 // delay=1 rd:0
               exit                                      // delay=1
} -> []
block 3 L3 [1] -> {
               bra pT L1                                 // delay=1
} -> [1]
"""

# The jumps are relative to where they stand; the preamble, from 0 again, is another program.
AGX = """shader: MESA_SHADER_COMPUTE
   0: 7e0d420a8000           mov      r3, r1
   6: 522c86a21800           while    $r3, u5, 1, ult
   c: 05614c0c01c8f200       load     r12_r13_r14_r15, du6, r10.sx, lsl 2, i32, xyzw, a
  14: 29ad2a0214000008       lstore   r11, r85l, 0, i32, x
  1c: 6800                   barrier
  1e: 69c11c0234000028       lload    r80_r81, r78l, 0, i32, xy
  26: 3800                   wait     a
  28: baf9b0c22a7c421a       ffma     r62, r12, r80, r62
  30: 0e0d460602000000       iadd     r3, r3.sx, 16
  38: 00c0ceffffff           jmp_any  -50
  3e: 520e00000000           pop_exec 1
  44: 4539c40c10c03200       store    r62_r63, du10, r6.sx, i32, xy, a
  4c: 8800                   stop
   0: 3800                   wait     a
   2: 8800                   stop
"""

IR3 = """; num_ubos:           0
@in(r0.x)	in0 (wrmask=0x7)
mov.u32u32 r1.y, r0.x
l4:
(nop3) cmps.u.ge p0.x, r1.y, c1.x
br p0.x, #l20
ldg.u32 r6.y, g[r5.x], 4
(sy)stl.u32 l[r24.y], r6.y, 1
bar.g
ldl.u32 r27.x, l[r24.w], 2
(ss)(rpt3)mad.f32 r12.x, r27.x, (r)r6.y, (r)r12.x
(rpt1)nop
add.u r1.y, r1.y, 16
jump #l4
l20:
stg.u32 g[r30.w], r12.x, 2
end
nop
"""


def check(name, got, want):
    if got != want:
        raise AssertionError(f"{name}: {got}, not {want}")


def check_loop(found, kinds, widths, macs):
    check("a loop", found["has_loop"], True)
    check("loops", found["loops"], 1)
    check("kinds", found["loop"]["kinds"], kinds)
    check("widths", found["loop"]["widths"], widths)
    check("multiply-adds", found["loop"]["macs"], macs)
    check("bytes", (found["loop"]["global_bytes"], found["whole"]["global_bytes"]), (16, 24))
    check("share of 128 bits", (found["loop"]["share_of_128"], found["whole"]["share_of_128"]), (1.0, 16 / 24))


WIDTHS = {"global_load": {"128": 1}, "shared_store": {"32": 1}, "shared_load": {"64": 1}}


def test_aco():
    found = analyse.analyse_program(analyse.parse_aco(ACO), 32)
    check_loop(
        found,
        {
            "fma": 2,
            "int": 2,
            "shared_load": 1,
            "shared_store": 1,
            "global_load": 1,
            "barrier": 1,
            "branch": 2,
            "wait": 1,
        },
        WIDTHS,
        2,
    )
    check("instructions", (found["loop"]["instructions"], found["whole"]["instructions"]), (10, 14))


def test_nak():
    found = analyse.analyse_program(analyse.parse_nak(NAK), 32)  # what leaves the loop stands between its blocks
    check_loop(
        found,
        {"fma": 2, "int": 2, "shared_load": 1, "shared_store": 1, "global_load": 1, "barrier": 1, "branch": 2},
        WIDTHS,
        3,
    )


def test_agx():
    found = analyse.analyse_program(analyse.parse_agx(AGX), 32)
    check_loop(
        found,
        {
            "fma": 1,
            "int": 1,
            "shared_load": 1,
            "shared_store": 1,
            "global_load": 1,
            "barrier": 1,
            "branch": 2,
            "wait": 1,
        },
        WIDTHS,
        1,
    )
    check("instructions", found["whole"]["instructions"], 12)


def test_ir3():
    found = analyse.analyse_program(analyse.parse_ir3(IR3), 64)
    check_loop(
        found,
        {
            "fma": 4,
            "int": 2,
            "shared_load": 1,
            "shared_store": 1,
            "global_load": 1,
            "barrier": 1,
            "branch": 2,
            "wait": 5,
        },
        WIDTHS,
        4,
    )


def test_matrices():
    """Multiply-adds of a matrix instruction are the whole subgroup's."""
    for text, parse, lanes, macs in (
        ("v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", analyse.parse_aco, 32, 128),
        ("v_dot4_i32_iu8 v0, v1, v2, v0", analyse.parse_aco, 32, 4),
        ("v_pk_fma_f16 v0, v1, v2, v0", analyse.parse_aco, 64, 2),
        ("r0..4 = hmma.m16n8k16.f32 r4..8 r8..10 r0..4", analyse.parse_nak, 32, 64),
        ("r0..2 = imma.m16n8k32.s8.s8 r4..8 r8..10 r0..4", analyse.parse_nak, 32, 128),
    ):
        check(text, analyse.count(parse(text), lanes)["macs"], macs)


def test_accesses():
    """Kinds and widths of the memory instructions that GPUs of different ages have for the same."""
    for op, kind, bits in (
        ("global_load_dwordx4", "global_load", 128),
        ("global_store_short_d16_hi", "global_store", 16),
        ("ds_read2_b64", "shared_load", 128),
        ("ds_write2st64_b32", "shared_store", 64),
        ("ds_load_u8_d16", "shared_load", 8),
        ("buffer_store_dword", "scratch", 32),
        ("scratch_load_b32", "scratch", 32),
        ("global_atomic_add_u32", "atomic", 32),
        ("ds_store_b96", "shared_store", 96),
    ):
        check(op, analyse.aco_memory(op), (kind, bits))
    for op, kind, bits in (
        ("ld.global.a64.strong.gpu.u16", "global_load", 16),
        ("st.local.b64", "scratch", 64),
        ("atom.global.add.u32", "atomic", 32),
    ):
        check(op, analyse.nak_kind(op)[:2], (kind, bits))


def test_nested_loops():
    """The inner loop that works is taken, not the outer one, nor one that only moves values among invocations."""
    text = (
        "BB1:\n v_mov_b32_e32 v3, 0\nBB2:\n v_fmac_f32_e32 v0, v1, v2\n s_cbranch_scc1 BB2\nBB3:\n v_readlane_b32 s0,"
        " v0, 1\n s_cbranch_scc1 BB3\nBB4:\n global_load_b32 v0, v1, off\n s_cbranch_scc1 BB1\nBB5:\n s_endpgm\n"
    )
    found = analyse.analyse_program(analyse.parse_aco(text), 32)
    check("loops", (found["loops"], found["loop"]["kinds"]), (3, {"fma": 1, "branch": 1}))
    found = analyse.analyse_program(analyse.parse_aco(text), 32, "bytes")
    check("by bytes", found["loop"]["kinds"]["global_load"], 1)


def test_no_loop():
    found = analyse.analyse_program(analyse.parse_aco("BB0:\n v_add_f32_e32 v0, v1, v2\n s_endpgm\n"), 32)
    check("the whole program", (found["has_loop"], found["loop"]), (False, found["whole"]))


def answer(text, spills):
    return {
        "device": "d",
        "driver": "v",
        "subgroup_size": 32,
        "pipeline_processor_ms": 1.5,
        "statistics": {"Instructions": 14, "VGPRs": 10, "Spilled VGPRs": spills},
        "texts": {"Assembly": text},
    }


def test_compare():
    """Ours does half of the shader's work in as many instructions; of the shaders the one for the chip's best class
    counts."""
    chip = next(c for c in chips.CHIPS if c.name == "navi31")
    row = {"class": "any", "shader": "s", "defines": "", "inner": "fma 64"}
    matrix = {"class": "matrix", "shader": "m", "defines": "-DFM=16 -DFN=16 -DFK=16 -DKIND=1", "inner": "fma 64"}
    half = ACO.replace(":: v_dual_mov_b32 v1, 0", "").replace("v_dual_fmac_f32 v7, v5, v2", "v_add_f32_e32 v7, v5, v2")
    line = measure.combine("k", chip, answer(half, 3), [(row, answer(ACO, 0)), (matrix, {"error": "signal 11: "})])
    check("shader", (line["shader"], line["hand_errors"]), ("s", ["m: signal 11: "]))
    check("ratios", (line["work"], line["loop_ratio"], line["whole_ratio"]), ("fma", 2.0, 1.0))
    check(
        "of another shape",
        measure.of_class({"class": "matrix", "defines": "-DFM=16 -DFN=8 -DFK=32 -DKIND=3"}, chip),
        -1,
    )
    broken = measure.combine("k", chip, {"error": "stopped after 60 s"}, [(row, answer(ACO, 0))])
    html = page.page([line, broken | {"kernel": "other"}])
    check("the page", [w in html for w in ("2.00!", "stopped after 60 s", "navi31", "<svg")], [True] * 4)


def main():
    passed, failed = 0, 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                passed += 1
            except Exception:  # what a parser throws on a program is a failure too
                failed += 1
                print(f"FAILED {name}")
                traceback.print_exc(file=sys.stdout)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
