"""The cases of tokamax."""

import importlib

from library_cases import BOTH, GRAD, Later, case, const, gradient, ints, load, made, normal, segments

OPS = "tokamax._src.ops."
BASES = {
    "attention": "DotProductAttention",
    "flex_attention": "FlexAttention",
    "normalization": "Normalization",
    "gated_linear_unit": "GatedLinearUnit",
    # without kernels
    "ragged_dot": "RaggedDot",
    "linear_softmax_cross_entropy_loss": "LinearSoftmaxCrossEntropyLoss",
}


def op(g, module, name, config, backward=None, rows=None, **fields):
    """An op of tokamax with the block sizes named; `backward`: module, name and block sizes of the op that is its
    gradient; `rows`: those of the result that mean something."""

    def of_rows(f):
        return (lambda *args, **kwargs: f(*args, **kwargs)[:, rows]) if rows else f

    def make():
        more = dict(fields)
        if backward:
            m, n, c = backward
            more["vjp"] = load(f"{OPS}{m}:{n}")(config=load(f"{OPS}{m}:Config")(**c))
        cls, cfg = load(f"{OPS}{module}:{name}"), made(f"{OPS}{module}:Config", **config).make()
        f = cls(config=cfg, **more)
        from library_cases import pretend

        pretend()
        return gradient(of_rows(f)) if g else of_rows(f)

    def reference():
        f = of_rows(load(f"{OPS}{module.split('.')[0]}.base:{BASES[module.split('.')[0]]}")())
        return gradient(f) if g else f

    return Later(make, reference)


def attention(t, d):
    q, k, v = normal(0, 1, 100, 4, 32, dtype=d), normal(1, 1, 100, 2, 32, dtype=d), normal(2, 1, 100, 2, 32, dtype=d)
    for g, w in (("", ""), (GRAD, " grad")):
        back = (
            "attention.pallas_triton_vjp",
            "PallasTritonFlashAttentionVjp",
            dict(block_m1=16, block_n1=32, block_m2=32, block_n2=16, num_stages=1, num_warps=4),
        )
        sizes = dict(block_q=32, block_k=32, num_stages=1, num_warps=4)
        flash = op(g, "attention.pallas_triton", "PallasTritonFlashAttention", sizes, back)
        case(f"tokamax/triton.attention/plain gqa {t}{w}", flash, q, k, v)
        case(f"tokamax/triton.attention/causal {t}{w}", flash, q, k, v, is_causal=True)
        case(f"tokamax/triton.attention/bias {t}{w}", flash, q, k, v, bias=normal(3, 1, 4, 100, 100, dtype=d))
        case(f"tokamax/triton.attention/mask {t}{w}", flash, q, k, v, mask=ints(4, 0, 2, 1, 4, 100, 100, dtype="bool"))
        # Rows before q_start see no key: the kernel gives them the mean of the values in its blocks of keys, the
        # library's own code the mean of all values.
        seen = op(g, "attention.pallas_triton", "PallasTritonFlashAttention", sizes, back, rows=slice(5, None))
        case(
            f"tokamax/triton.attention/window {t}{w}",
            seen,
            q,
            k,
            v,
            mask=made("tokamax._src.ops.attention.base:Mask", q_start=const([5]), k_end=const([90])),
        )
        if not g:  # there are no gradients of these
            case(f"tokamax/triton.attention/soft cap {t}", flash, q, k, v, logits_soft_cap=3.0)
            case(
                f"tokamax/triton.attention/dropout {t}",
                flash,
                q,
                k,
                v,
                dropout_mask=ints(4, 0, 2, 1, 4, 100, 100, dtype="bool"),
                dropout_rate=0.5,
            )
            flex = op(g, "flex_attention.pallas_triton", "PallasTritonFlexAttention", sizes)
            case(f"tokamax/triton.flex_attention/plain {t}", flex, q, k, v)
    case(
        f"tokamax/triton.attention/split k {t}",
        op("", "attention.pallas_triton", "PallasTritonFlashAttention", dict(split_k=2, **sizes)),
        q,
        k,
        v,
    )
    for g, w in (("", ""), (GRAD, " grad")):
        tq, tk, tv = (
            normal(0, 1, 256, 2, 32, dtype=d),
            normal(1, 1, 256, 2, 32, dtype=d),
            normal(2, 1, 256, 2, 32, dtype=d),
        )
        back = (
            "attention.pallas_mosaic_tpu_vjp",
            "PallasMosaicTpuFlashAttentionVjp",
            dict(block_q_dkv=128, block_kv_dkv=128, block_kv_dkv_compute=128),
        )
        layout = made("tokamax._src.ops.experimental.tpu.splash_attention.splash_attention_kernel:QKVLayout", 1)
        for what, more in {"plain": {}, "causal": dict(is_causal=True), "soft cap": dict(logits_soft_cap=3.0)}.items():
            case(
                f"tokamax/tpu.attention/{what} {t}{w}",
                op(
                    g,
                    "attention.pallas_mosaic_tpu",
                    "PallasMosaicTpuFlashAttention",
                    dict(
                        block_q=128,
                        block_kv=128,
                        block_kv_compute=128,
                        q_layout=layout,
                        k_layout=layout,
                        v_layout=layout,
                        use_experimental_scheduler=False,
                    ),
                    back,
                ),
                tq,
                tk,
                tv,
                **more,
            )


def splash(g, mask, **config):
    """Splash attention."""

    def make():
        kernel = importlib.import_module(OPS + "experimental.tpu.splash_attention.splash_attention_kernel")
        masks = importlib.import_module(OPS + "experimental.tpu.splash_attention.splash_attention_mask")
        sizes = dict(
            block_q=128, block_kv=128, block_kv_compute=128, block_q_dkv=128, block_kv_dkv=128, block_kv_dkv_compute=128
        )
        f = kernel.make_splash_mha_single_device(mask(masks), config=kernel.SplashConfig(**sizes, **config))
        return gradient(f) if g else f

    return Later(make)


def splashes(t, d):
    q, k, v = normal(0, 2, 256, 64, dtype=d, scale=0.2), normal(1, 2, 256, 64, dtype=d), normal(2, 2, 256, 64, dtype=d)
    ids = made(
        OPS + "experimental.tpu.splash_attention.splash_attention_kernel:SegmentIds",
        q=segments(1, 256, 100),
        kv=segments(1, 256, 100),
    )
    for g, w in (("", ""), (GRAD, " grad")):
        for what, mask in {
            "causal": lambda m: m.CausalMask((256, 256)),
            "local": lambda m: m.LocalMask((256, 256), (60, 10), 0),
            "full": lambda m: m.FullMask((256, 256)),
        }.items():
            case(f"tokamax/tpu.splash_attention/{what} {t}{w}", splash(g, mask), q, k, v)
        case(
            f"tokamax/tpu.splash_attention/soft cap scheduler {t}{w}",
            splash(g, lambda m: m.CausalMask((256, 256)), attn_logits_soft_cap=3.0, use_experimental_scheduler=True),
            q,
            k,
            v,
        )
        case(
            f"tokamax/tpu.splash_attention/natural exp {t}{w}",
            splash(g, lambda m: m.CausalMask((256, 256)), use_base2_exp=False, fuse_reciprocal=False),
            q,
            k,
            v,
        )


def others(t, d):
    x, scale, offset = normal(0, 6, 100, dtype=d), normal(1, 100, dtype=d), normal(2, 100, dtype=d)
    x3, scale3, offset3 = normal(0, 4, 20, 6, dtype=d), normal(1, 20, dtype=d), normal(2, 20, dtype=d)
    back = "normalization.pallas_triton_vjp", "PallasTritonNormalizationVjp"
    for g, w in (("", ""), (GRAD, " grad")):
        rows, inner = dict(block_m=4, block_n=None, num_warps=4), dict(block_m=2, block_n=4, num_warps=4)
        norm = op(g, "normalization.pallas_triton", "PallasTritonNormalization", rows, (*back, rows))
        norm3 = op(g, "normalization.pallas_triton", "PallasTritonNormalization", inner, (*back, inner))
        case(f"tokamax/triton.normalization/layer norm {t}{w}", norm, x, scale, offset)
        case(
            f"tokamax/triton.normalization/rms norm {t}{w}", norm, x, scale, None, subtract_mean=False, scale_offset=1.0
        )
        case(f"tokamax/triton.normalization/inner axis {t}{w}", norm3, x3, scale3, offset3, axis=1)
        glu = op(
            g,
            "gated_linear_unit.pallas_triton",
            "PallasTritonGatedLinearUnit",
            dict(block_m=32, block_n=32, block_k=32, num_warps=4, num_stages=1),
        )
        for activation in (None, "silu", "gelu"):
            case(
                f"tokamax/triton.gated_linear_unit/{activation} {t}{w}",
                glu,
                normal(0, 70, 96, dtype=d),
                normal(1, 96, 2, 80, dtype=d, scale=0.2),
                activation=made("builtins:getattr", Later(lambda: load("jax:nn")), activation) if activation else None,
            )
        lhs, rhs, sizes = normal(0, 128, 64, dtype=d), normal(1, 4, 64, 96, dtype=d), const([40, 0, 50, 38])
        dot = op(
            g,
            "ragged_dot.pallas_triton",
            "PallasTritonRaggedDot",
            dict(block_m=32, block_n=32, block_k=32, num_stages=1),
        )
        # the kernel for the gradient adds earlier rows to a group without any (its last step, the -1st, is masked by
        # the end only), on a GPU as well
        if g:
            sizes = const([40, 1, 49, 38])
        case(f"tokamax/triton.ragged_dot/plain {t}{w}", dot, lhs, rhs, group_sizes=sizes)
        split = op(
            g,
            "ragged_dot.pallas_triton",
            "PallasTritonRaggedDot",
            dict(block_m=32, block_n=32, block_k=32, split_k=2, num_stages=1),
        )
        case(f"tokamax/triton.ragged_dot/split k {t}{w}", split, lhs, rhs, group_sizes=sizes)
        tpu = op(
            g, "ragged_dot.pallas_mosaic_tpu", "PallasMosaicTpuRaggedDot", dict(tile_m=128, tile_k=128, tile_n=128)
        )
        case(
            f"tokamax/tpu.ragged_dot/plain {t}{w}",
            tpu,
            normal(0, 256, 128, dtype=d),
            normal(1, 4, 128, 256, dtype=d),
            group_sizes=const([100, 0, 90, 66]),
        )
        case(
            f"tokamax/tpu.ragged_dot/activation {t}{w}",
            tpu,
            normal(0, 256, 128, dtype=d),
            normal(1, 4, 128, 256, dtype=d),
            group_sizes=const([100, 0, 90, 66]),
            activation=made("builtins:getattr", Later(lambda: load("jax:nn")), "relu"),
        )
        for reduction in ("sum", "mean"):
            config = dict(b_block_size=1024, h_block_size=128, v_block_size=256)
            loss = op(
                g,
                "linear_softmax_cross_entropy_loss.pallas_mosaic_tpu",
                "PallasMosaicTpuLinearSoftmaxCrossEntropyLoss",
                config,
            )
            case(
                f"tokamax/tpu.linear_softmax_cross_entropy_loss/{reduction} {t}{w}",
                loss,
                normal(0, 1024, 256, dtype=d),
                ints(1, 0, 512, 1024),
                normal(2, 256, 512, dtype=d, scale=0.1),
                reduction=reduction,
            )


def quantized_dot(module, name, config, qtype, where):
    def make():
        import qwix

        f = op("", module, name, config).make()

        def quantised(lhs, rhs, sizes):
            if "lhs" in where:
                lhs = qwix.quantize(lhs, qtype, tiled_axes={0: 1, 1: lhs.shape[1]})
            return f(lhs, qwix.quantize(rhs, qtype, tiled_axes={0: 1, 1: rhs.shape[1], 2: 1}), group_sizes=sizes)

        return quantised

    return Later(make)


for _t, _d in BOTH.items():
    attention(_t, _d)
    splashes(_t, _d)
    others(_t, _d)
for _q in ("int8", "float8_e4m3fn"):
    for _where in ("rhs", "lhs rhs"):
        case(
            f"tokamax/triton.ragged_dot/{_q} {_where}",
            quantized_dot(
                "ragged_dot.pallas_triton",
                "PallasTritonRaggedDot",
                dict(block_m=32, block_n=32, block_k=32, num_stages=1),
                _q,
                _where,
            ),
            normal(0, 128, 64, dtype="bfloat16"),
            normal(1, 4, 64, 96, dtype="bfloat16"),
            const([40, 0, 50, 38]),
        )
        case(
            f"tokamax/tpu.ragged_dot/{_q} {_where}",
            quantized_dot(
                "ragged_dot.pallas_mosaic_tpu",
                "PallasMosaicTpuRaggedDot",
                dict(tile_m=128, tile_k=128, tile_n=128),
                _q,
                _where,
            ),
            normal(0, 256, 128, dtype="bfloat16"),
            normal(1, 4, 128, 256, dtype="bfloat16"),
            const([100, 0, 90, 66]),
        )
