"""Compares what the transformer sample computed with JAX, in double precision.

    build/samples/transformer --answers answers.safetensors
    python samples/transformer/check.py transformer.safetensors answers.safetensors

Reads the weights that the sample read, runs the same model by jax.numpy in float64, and prints the largest difference
between the logits. Exits with 1 if that is more than roundings explain, or if a token that the sample chose is not the
likeliest.
"""

import json
import sys

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402

DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I32": np.int32}


def read_safetensors(path):
    """Names to float64 or int32 arrays, the metadata, and the weights' dtype."""
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    tensors, dtype = {}, None
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        a = np.frombuffer(data[8 + size + begin : 8 + size + end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            a = (a.astype(np.uint32) << 16).view(np.float32)
        if entry["dtype"] != "I32":
            dtype = entry["dtype"]
            a = a.astype(np.float64)
        tensors[name] = a
    return tensors, metadata, dtype


def forward(w, config, tokens):
    """Logits [length, vocabulary] of tokens [length]."""
    heads, kv_heads, head_dim = (int(config[k]) for k in ("heads", "kv_heads", "head_dim"))
    length = len(tokens)

    def norm(x, weight):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + float(config["norm_epsilon"])) * weight

    def rope(x):  # [length, heads, head_dim]
        half = head_dim // 2
        angle = jnp.arange(length)[:, None] * float(config["rope_base"]) ** (-jnp.arange(half) / half)
        cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x = w["embedding"][tokens]
    for i in range(int(config["layers"])):
        p = {
            name: w[f"layers.{i}.{name}"]
            for name in ("attention_norm", "wq", "wk", "wv", "wo", "mlp_norm", "gate", "up", "down")
        }
        h = norm(x, p["attention_norm"])
        q = rope((h @ p["wq"]).reshape(length, heads, head_dim))
        k = rope((h @ p["wk"]).reshape(length, kv_heads, head_dim))
        v = (h @ p["wv"]).reshape(length, kv_heads, head_dim)
        k, v = (jnp.repeat(a, heads // kv_heads, 1) for a in (k, v))
        logits = jnp.einsum("qhd,khd->hqk", q, k) / np.sqrt(head_dim)
        seen = jnp.tril(jnp.ones((length, length), bool))
        weights = jax.nn.softmax(jnp.where(seen, logits, -jnp.inf), -1)
        x = x + jnp.einsum("hqk,khd->qhd", weights, v).reshape(length, -1) @ p["wo"]
        h = norm(x, p["mlp_norm"])
        x = x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
    return norm(x, w["norm"]) @ w["head"]


def check(weights_path, answers_path):
    """The largest difference, what is allowed, and how many chosen tokens are not the likeliest."""
    w, config, dtype = read_safetensors(weights_path)
    answers, _, _ = read_safetensors(answers_path)
    tokens, logits = answers["tokens"], answers["logits"]
    wanted = np.asarray(forward(w, config, tokens))
    # A rounding to the model's dtype after each of a layer's ten or so ops, which add up as a random walk, times the
    # largest logit; in f32 sums of hundreds of terms round as much again several times.
    unit = {"F32": 8 * 2.0**-24, "F16": 2.0**-11, "BF16": 2.0**-8}[dtype]
    allowed = unit * np.sqrt(10 * int(config["layers"])) * np.abs(wanted).max()
    difference = np.abs(wanted - logits).max()
    # Up to the roundings, the sample's own logits choose as JAX's do.
    chosen = logits.argmax(-1)
    behind = wanted.max(-1) - wanted[np.arange(len(tokens)), chosen]
    return difference, allowed, int((behind > 2 * allowed).sum()), len(tokens)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    difference, allowed, wrong, count = check(*sys.argv[1:])
    good = difference <= allowed and wrong == 0
    print(
        f"transformer: {count} tokens against JAX in float64: logits differ by at most {difference:.3g}, allowed"
        f" {allowed:.3g}; {wrong} tokens are others: {'ok' if good else 'WRONG'}"
    )
    sys.exit(not good)
