"""The cases of ejkernel. Left out: ring_attention, all_gather_matmul and reduce_scatter_matmul (collectives; without an
axis the first calls no kernel), and gpu/scaled_dot_product_attention (no Pallas)."""

import functools
import importlib

import numpy as np

from library_cases import BOTH, GRAD, Later, case, const, gradient, ints, load, made, normal, segments, uniform

EJ = "ejkernel.kernels._pallas.tpu."
EJ_GPU = "ejkernel.kernels._pallas.gpu."
PARAMS = "ejkernel.ops.utils.datacarrier:"


def params(which, n, m):
    return made(PARAMS + which, q_blocksize=n, kv_blocksize=m, num_stages=2, num_warps=4)


def fused_backward(g):
    """What blocksparse_attention(fused_backward=True) would call if it did not refuse its own block sizes."""

    def make():
        kernel = importlib.import_module(EJ + "blocksparse_attention._kernel")
        masks = importlib.import_module(EJ + "blocksparse_attention._masks")
        sizes = kernel.BlockSizes(
            block_q=128,
            block_kv=128,
            block_kv_compute=128,
            block_q_dkv=128,
            block_kv_dkv=128,
            block_kv_dkv_compute=128,
            use_fused_bwd_kernel=True,
        )
        f = kernel.make_splash_mha_single_device(
            masks.MultiHeadMask([masks.CausalMask((256, 256))] * 2), block_sizes=sizes
        )
        return gradient(f) if g else f

    return Later(make)


def attention(t, d):
    for g, w in (("", ""), (GRAD, " grad")):
        q, k, v = (
            normal(0, 1, 256, 4, 32, dtype=d),
            normal(1, 1, 256, 2, 32, dtype=d),
            normal(2, 1, 256, 2, 32, dtype=d),
        )
        blocks = dict(fwd_params=params("FwdParams", 128, 128), bwd_params=params("BwdParams", 128, 128))
        flash = g + EJ + "flash_attention:flash_attention"
        case(f"ejkernel/flash_attention/causal gqa {t}{w}", flash, q, k, v, causal=True, **blocks)
        case(f"ejkernel/flash_attention/bias {t}{w}", flash, q, k, v, bias=normal(3, 1, 4, 256, 256, dtype=d), **blocks)
        case(
            f"ejkernel/flash_attention/segments {t}{w}",
            flash,
            q,
            k,
            v,
            q_segment_ids=segments(1, 256, 100),
            kv_segment_ids=segments(1, 256, 100),
            **blocks,
        )
        case(
            f"ejkernel/flash_attention/window soft cap {t}{w}",
            flash,
            q,
            k,
            v,
            causal=True,
            sliding_window=(40, 3),
            logits_soft_cap=5.0,
            **blocks,
        )
        qh, kh, vh = (
            normal(0, 1, 2, 256, 32, dtype=d),
            normal(1, 1, 1, 256, 32, dtype=d),
            normal(2, 1, 1, 256, 32, dtype=d),
        )
        sparse = g + EJ + "blocksparse_attention:blocksparse_attention"
        case(f"ejkernel/blocksparse_attention/causal gqa {t}{w}", sparse, qh, kh, vh, **blocks)
        case(
            f"ejkernel/blocksparse_attention/window {t}{w}",
            sparse,
            qh,
            kh,
            vh,
            sliding_window=60,
            logits_soft_cap=5.0,
            **blocks,
        )
        case(f"ejkernel/blocksparse_attention/chunks {t}{w}", sparse, qh, kh, vh, chunk_size=64, **blocks)
        case(
            f"ejkernel/blocksparse_attention/segments {t}{w}",
            sparse,
            qh,
            kh,
            vh,
            segments(1, 256, 100),
            segments(1, 256, 100),
            causal=False,
            **blocks,
        )
        case(f"ejkernel/blocksparse_attention/sinks {t}{w}", sparse, qh, kh, vh, softmax_aux=normal(5, 2), **blocks)
        case(
            f"ejkernel/blocksparse_attention/fused backward {t}{w}",
            fused_backward(g),
            normal(0, 2, 256, 32, dtype=d, scale=0.2),
            normal(1, 1, 256, 32, dtype=d),
            normal(2, 1, 256, 32, dtype=d),
        )
        mla = g + EJ + "flash_mla:flash_mla"
        latent, wk, wv = (
            normal(1, 1, 128, 64, dtype=d),
            normal(2, 64, 2, 32, dtype=d, scale=0.2),
            normal(3, 64, 2, 32, dtype=d, scale=0.2),
        )
        qm, qr = normal(0, 1, 128, 4, 32, dtype=d), normal(0, 1, 128, 4, 48, dtype=d)
        case(f"ejkernel/flash_mla/causal {t}{w}", mla, qm, latent, wk, wv, causal=True)
        case(
            f"ejkernel/flash_mla/fused rope {t}{w}",
            mla,
            qr,
            latent,
            wk,
            wv,
            b_k=normal(4, 1, 128, 16, dtype=d),
            causal=True,
        )
        case(
            f"ejkernel/flash_mla/decoupled rope {t}{w}",
            mla,
            qm,
            latent,
            wk,
            wv,
            b_q=normal(5, 1, 128, 16, dtype=d),
            b_k=normal(4, 1, 128, 16, dtype=d),
        )
        case(
            f"ejkernel/flash_mla/bias window {t}{w}",
            mla,
            qm,
            latent,
            wk,
            wv,
            bias=normal(6, 1, 4, 128, 128),
            sliding_window=30,
            logits_soft_cap=4.0,
        )
        case(
            f"ejkernel/deepseek_attn/causal {t}{w}",
            g + EJ + "deepseek_attn:deepseek_attn",
            qm,
            latent,
            wk,
            wv,
            normal(6, 1, 128, 2, 16, dtype=d),
            normal(7, 1, 128, 16, dtype=d),
            normal(8, 1, 128, 2, dtype=d),
            32,
            jit=False,
        )
    case(f"ejkernel/flash_attention/default blocks {t}", EJ + "flash_attention:flash_attention", q, k, v, causal=True)


def recurrent(t, d):
    for g, w in (("", ""), (GRAD, " grad")):
        # The public function does not call this kernel any more.
        chunks = g + EJ + "gated_delta_rule._pallas_impl_fwd:_chunk_gdr_fwd_pallas_chunk"
        q, k, v = (normal(i, 1, 2, 128, 128, dtype=d) for i in range(3))
        case(
            f"ejkernel/gated_delta_rule/chunks {t}{w}",
            chunks,
            q,
            k,
            v,
            uniform(3, 1, 2, 128, dtype=d),
            uniform(4, 1, 2, 128, dtype=d, low=-1.0, high=0.0),
            64,
            None,
            True,
        )
        one = [normal(i, 1, 1, 2, 32, dtype=d) for i in range(3)]
        case(
            f"ejkernel/gated_delta_rule/single step {t}{w}",
            g + EJ + "gated_delta_rule:gated_delta_rule",
            *one,
            uniform(3, 1, 1, 2, dtype=d),
            uniform(4, 1, 1, 2, dtype=d, low=-1.0, high=0.0),
            initial_state=normal(5, 1, 2, 32, 32, dtype=d),
        )
    tokens = [normal(i, 4, 2, 128, dtype=d) for i in range(3)]
    weights = uniform(3, 4, 2, dtype=d), uniform(4, 4, 2, dtype=d, low=-1.0, high=0.0)
    case(
        f"ejkernel/ragged_gated_delta_rule/decode {t}",
        EJ + "ragged_gated_delta_rule._interface:ragged_gated_delta_rule_decode",
        *tokens,
        *weights,
        normal(5, 6, 2, 128, 128, dtype=d),
        const([3, 1, 5, 2]),
    )


def losses(t, d):
    for g, w in (("", ""), (GRAD, " grad")):
        ce = g + EJ + "fused_cross_entropy:fused_cross_entropy"
        logits, targets = normal(0, 16, 1000, dtype=d), ints(1, 0, 1000, 16)
        case(f"ejkernel/fused_cross_entropy/mean {t}{w}", ce, logits, targets)
        case(
            f"ejkernel/fused_cross_entropy/smooth z {t}{w}",
            ce,
            logits,
            targets,
            uniform(2, 16),
            label_smoothing=0.1,
            z_loss=1e-3,
            reduction="sum",
        )
        for direction in ("forward", "reverse"):  # "jsd" and soft targets have no kernel
            case(
                f"ejkernel/fused_kl_divergence/{direction} {t}{w}",
                g + EJ + "fused_kl_divergence:fused_kl_divergence",
                logits,
                normal(3, 16, 1000, dtype=d),
                direction=direction,
                temperature=1.5,
            )


def products(t, d):
    lhs, rhs, sizes = normal(0, 256, 128, dtype=d), normal(1, 4, 128, 256, dtype=d), const([100, 0, 90, 66])
    for version in ("", "v2", "v3"):
        name = f"grouped_matmul{version}"
        f = f"{EJ}{name}:{name}"
        for g, w in (("", ""), (GRAD, " grad")):
            case(f"ejkernel/{name}/plain {t}{w}", g + f, lhs, rhs, sizes)
            if version != "v3" or not g:  # whose gradient has the shape of the other operand
                case(
                    f"ejkernel/{name}/transposed {t}{w}",
                    g + f,
                    lhs,
                    normal(1, 4, 256, 128, dtype=d),
                    sizes,
                    transpose_rhs=True,
                )
    case(
        f"ejkernel/grouped_matmulv3/default tiles bias {t}",
        EJ + "grouped_matmulv3:grouped_matmulv3",
        lhs,
        rhs,
        sizes,
        rhs_bias=normal(2, 4, 1, 256),
        tiling=None,
    )
    case(
        f"ejkernel/grouped_matmulv3/default tiles long {t}",
        EJ + "grouped_matmulv3:grouped_matmulv3",
        normal(0, 1024, 512, dtype=d),
        normal(1, 8, 512, 512, dtype=d),
        const([100, 0, 290, 66, 300, 8, 0, 260]),
        tiling=None,
    )
    for mode, bits in (
        ("affine", 4),
        ("affine", 8),
        ("nf4", 4),
        ("mxfp4", 4),
        ("mxfp8", 8),
        ("nvfp4", 4),
        ("nvfp8", 8),
    ):
        for g, w in (("", ""), (GRAD, " grad")):
            case(
                f"ejkernel/quantized_matmul/{mode}{bits} {t}{w}",
                Later(lambda m=mode, b=bits, g=g: quantized(m, b, g)),
                normal(0, 128, 256, dtype=d),
                normal(1, 256, 256),
                bound=2e-2,
            )


def quantized(mode, bits, g):
    """x times weights that are quantised on the way."""

    def f(x, weights):
        quantize, qmm = load("ejkernel.quantization._quants.quantizations:quantize"), load(
            EJ + "quantized_matmul:quantized_matmul"
        )
        w, scales, *zeros = quantize(weights, mode=mode, bits=bits, axis="row")
        return lambda x: qmm(x, w, scales, *zeros, mode=mode, bits=bits, axis="row", allow_dense_fallback=False)

    return (lambda x, weights: gradient(f(x, weights))(x)) if g else (lambda x, weights: f(x, weights)(x))


def pages(t, d):
    q = normal(0, 2, 8, 128, dtype=d)
    cache = normal(1, 2, 8, 16, 128, dtype=d), normal(2, 2, 8, 16, 128, dtype=d)
    cache1 = normal(1, 1, 8, 16, 128, dtype=d), normal(2, 1, 8, 16, 128, dtype=d)
    table, lengths = const([[3, 1, 6, 0], [5, 2, 7, 4]]), const([19, 60])
    paged = EJ + "page_attention:page_attention"
    for what, more in {
        "inline": {},
        "grid": dict(inline_seq_dim=False),
        "window": dict(sliding_window=20),
        "soft cap": dict(attn_logits_soft_cap=4.0),
    }.items():
        case(
            f"ejkernel/page_attention/{what} {t}",
            paged,
            q,
            *cache,
            lengths,
            table,
            attn_scale=0.1,
            pages_per_compute_block=2,
            bound=2e-2,
            **more,
        )
    # One head of keys: the kernel starts its first copies for head 0 only, and waits for them for every head. A TPU
    # would wait forever, we say so, and JAX's interpreter does not look at semaphores.
    prefill = EJ + "prefill_page_attention:prefill_page_attention"
    for what, more in {
        "plain": {},
        "window": dict(sliding_window=20),
        "soft cap": dict(attn_logits_soft_cap=4.0),
    }.items():
        case(
            f"ejkernel/prefill_page_attention/{what} {t}",
            prefill,
            normal(0, 32, 4, 128, dtype=d),
            *cache1,
            const([64]),
            const([3, 1, 6, 0]),
            softmax_scale=0.1,
            **more,
        )
    decode = (
        normal(0, 2, 8, 128, dtype=d),
        normal(1, 2, 256, 2, 128, dtype=d),
        normal(2, 2, 256, 2, 128, dtype=d),
        const([3, 0]),
        const([200, 77]),
    )
    for what, more in {
        "plain": {},
        "window": dict(sliding_window=(40, 0)),
        "soft cap sinks": dict(logits_soft_cap=4.0, softmax_aux=normal(4, 8)),
    }.items():
        case(
            f"ejkernel/ragged_decode_attention/{what} {t}",
            EJ + "ragged_decode_attention:ragged_decode_attention",
            *decode,
            fwd_params=made(PARAMS + "FwdParams", kv_blocksize=128, q_blocksize=8),
            **more,
        )
    case(
        f"ejkernel/gpu.ragged_decode_attention/plain {t}",
        EJ_GPU + "ragged_decode_attention:ragged_decode_attention",
        *decode,
        fwd_params=made(
            PARAMS + "FwdParams", blocksize_heads=16, kv_blocksize=64, num_key_splits=2, num_warps=4, num_stages=2
        ),
    )
    ragged = (
        normal(0, 24, 4, 128, dtype=d),
        normal(1, 16, 8, 4, 128, dtype=d),
        const([20, 13, 30]),
        ints(2, 0, 16, 3, 4),
        const([0, 10, 13, 24]),
    )
    v2 = EJ + "ragged_page_attention_v2:ragged_page_attention_v2"
    blocks = dict(num_kv_pages_per_block=2, num_queries_per_block=8)
    for what, more in {
        "plain": blocks,
        "window": dict(sliding_window=7, **blocks),
        "soft cap": dict(logits_soft_cap=5.0, **blocks),
        "sinks": dict(softmax_aux=normal(5, 4), **blocks),
        "default blocks": {},
    }.items():
        case(f"ejkernel/ragged_page_attention_v2/{what} {t}", v2, *ragged, const(3), **more)
    long = (
        normal(0, 256, 8, 128, dtype=d),
        normal(1, 64, 16, 4, 128, dtype=d),
        const([300, 200, 500]),
        ints(2, 0, 64, 3, 32),
        const([0, 60, 150, 256]),
    )
    case(f"ejkernel/ragged_page_attention_v2/default blocks long {t}", v2, *long, const(3))


def ragged_v3_judge(dim, pages_per_block, queries_per_block):
    """The library's own code for ragged_page_attention_v3 (that of _xla forgets keys). Under a window the kernel starts
    at the block with the first key of a sequence's last query, and so leaves out keys of its earlier queries. The
    library's code does so too, by the blocks that it would choose itself; here, by those of the case."""
    module = importlib.import_module(
        EJ + "ragged_page_attention_v3." + {128: "_pallas_impl_fwd", 64: "_pallas_impl_fwd_h64"}[dim]
    )
    f = getattr(module, {128: "ref_ragged_paged_attention", 64: "ref_ragged_paged_attention_hd64"}[dim])
    choice = {128: "get_tuned_block_sizes", 64: "get_tuned_block_sizes_h64"}[dim]

    @functools.wraps(f)
    def judge(*args, **kwargs):
        stock = getattr(module, choice)
        setattr(module, choice, lambda *_: (pages_per_block, queries_per_block))
        try:
            return f(*args, **kwargs)
        finally:
            setattr(module, choice, stock)

    return judge


def ragged_v3(t, d, dim):
    packing = {"float32": 1, "bfloat16": 2}[d]
    heads, tokens = 2, 24
    new = [normal(i, tokens, 4 if i == 0 else heads, dim, dtype=d) for i in range(3)]
    shape = (
        (16, 8, 2 * heads // packing, packing, 128) if dim == 128 else (16, 8, max(1, heads // packing), packing, 128)
    )
    where = (
        const([20, 13, 30]),
        const(np.random.default_rng(2).permutation(16)[:12]),
        const([0, 1, 13, 24]),
        const([1, 1, 3]),
    )
    f = EJ + "ragged_page_attention_v3:ragged_page_attention_v3"
    blocks = dict(num_kv_pages_per_block=2, num_queries_per_block=8)
    for what, more in {
        "plain": blocks,
        "window": dict(sliding_window=7, **blocks),
        "soft cap": dict(logits_soft_cap=5.0, **blocks),
        "sinks": dict(softmax_aux=normal(5, 4), **blocks),
        "default blocks": {},
    }.items():
        case(
            f"ejkernel/ragged_page_attention_v3/{what} h{dim} {t}",
            f,
            *new,
            normal(4, *shape, dtype=d),
            *where,
            softmax_scale=0.1,
            reference=Later(lambda: ragged_v3_judge(dim, 2, 8)),
            **more,
        )


def latent_pages(t, d):
    packing = {"float32": 1, "bfloat16": 2}[d]
    new = (
        normal(0, 24, 4, 128, dtype=d),
        normal(1, 24, 4, 64, dtype=d),
        normal(2, 24, 128, dtype=d),
        normal(3, 24, 64, dtype=d),
    )
    # v2 stores whole words: of bf16, also the token behind one at an even place, which is no token yet
    for version, length in (("", 13), ("_v2", 14)):
        where = (
            const([20, length, 30]),
            const(np.random.default_rng(2).permutation(16)[:12]),
            const([0, 1, 13, 24]),
            const([1, 1, 3]),
        )
        name = f"multi_latent_ragged_page_attention{version}"
        for what, more in {
            "plain": {},
            "window": dict(sliding_window=7),
            "soft cap": dict(logits_soft_cap=5.0),
        }.items():
            case(
                f"ejkernel/{name}/{what} {t}",
                f"{EJ}{name}:{name}",
                *new,
                normal(4, 16, 8 // packing, packing, 256, dtype=d),
                *where,
                softmax_scale=0.1,
                num_kv_pages_per_block=2,
                num_queries_per_block=4,
                **more,
            )  # a divisor of the number of heads


for _t, _d in BOTH.items():
    attention(_t, _d)
    recurrent(_t, _d)
    losses(_t, _d)
    products(_t, _d)
    pages(_t, _d)
    ragged_v3(_t, _d, 128)
    ragged_v3(_t, _d, 64)
    latent_pages(_t, _d)
