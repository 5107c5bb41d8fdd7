"""Random Pallas kernels (random_kernels.py) on both devices against JAX's interpret=True. TESSERA_TEST_SEED is the
first seed and TESSERA_TEST_KERNELS the number of kernels. A failure prints its program; `python
tests/jax/random_kernels.py --seed N --count 1` shrinks it."""

import os

import pytest

import random_kernels
from support import DEVICES

FIRST = int(os.environ.get("TESSERA_TEST_SEED", "1"))
COUNT = int(os.environ.get("TESSERA_TEST_KERNELS", "300"))
STEP = 10


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, STEP))
def test_random_kernels(first):
    wrong, refused = [], []
    for seed in range(first, min(first + STEP, FIRST + COUNT)):
        head, tail, _ = random_kernels.generate(seed)
        try:
            want = random_kernels.answers(head + tail)
        except random_kernels.Refused as error:
            refused.append(f"seed {seed}: {error}")
            continue
        wrong += filter(None, (random_kernels.check(seed, device, want) for device in DEVICES))
    assert not wrong, "\n".join(wrong)
    assert len(refused) < STEP / 2, "\n".join(refused)
