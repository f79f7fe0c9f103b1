"""What oneDNN's products of batches copy: by rule what it is when they run for real."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import tensorflow as tf

from memopt.buffers.kernel_call import Runtime
from memopt.buffers.product_scratch import Product, product_scratch_bytes
from memopt.graph.kernels import has_avx512
from memopt.item import GrapplerItem
from memopt.kernels.choice import surveyed
from memopt.kernels.measure import measure
from memopt.kernels.table import Environment
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADS, TURNED = (4, 4, 64, 32), (4, 64, 4, 32)
EQUATIONS = ("BTNH,BSNH->BNTS", "BNTS,BSNH->BTNH")


def _attention(heads: tf.Tensor, turned: tf.Tensor) -> Iterable[tf.Tensor]:
    """Products of an attention and of its gradients, as layers make them."""
    with tf.GradientTape() as tape:
        tape.watch((heads, turned))
        scores = tf.nn.softmax(tf.matmul(heads, heads, transpose_b=True))
        mixed = tf.matmul(scores, heads)
        scores = tf.nn.softmax(tf.einsum(EQUATIONS[0], turned, turned))
        found = (mixed, tf.einsum(EQUATIONS[1], scores, turned))
        loss = tf.add_n([tf.reduce_sum(each**2) for each in found])
    gradients: Iterable[tf.Tensor] = tape.gradient(loss, (heads, turned))
    return gradients


@pytest.mark.skipif(not has_avx512(), reason="oneDNN copies blocks with AVX-512 alone")
@pytest.mark.parametrize("threads", [2, 3])
def test_an_attention_copies_what_the_rule_says(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    runtime = Runtime(intra_op_threads=threads, onednn=True)
    specs = tf.TensorSpec(HEADS, tf.float32), tf.TensorSpec(TURNED, tf.float32)
    function = tf.function(_attention, autograph=False).get_concrete_function(*specs)
    item = GrapplerItem.from_concrete_function(function)
    kernels = {
        key: kernel
        for key, kernel in surveyed(item, runtime, Properties.of(item)).kernels.items()
        if kernel.signature.op in ("BatchMatMulV2", "Einsum")
    }
    measured = measure(kernels, Environment.of(runtime))
    rule = {str(each.signature): each.by_rule.scratch_bytes for each in kernels.values()}
    real = {each.kernel: each.memory and each.memory.scratch_bytes for each in measured.values()}
    assert real == rule
    assert len(rule) >= 8
    assert max(rule.values()) > 32 * 64 * 4 * threads


@pytest.mark.parametrize(
    ("product", "threads", "scratch_bytes"),
    [
        (Product(16, 256, 256, 32, False, False), 2, 1408),
        (Product(16, 256, 256, 32, True, False), 2, 525824),
        (Product(16, 256, 256, 32, False, True), 2, 132608),
        (Product(16, 256, 256, 32, True, True), 2, 657024),
        (Product(1, 256, 256, 32, True, False), 2, 263680),
        (Product(1, 256, 256, 32, True, False), 8, 267520),
        (Product(2, 1024, 1024, 64, True, False), 1, 541568),
        (Product(2, 512, 512, 2048, False, False), 2, 263680),
        (Product(2, 31, 2048, 48, False, True), 2, 525824),
        (Product(1, 768, 64, 1, False, True), 2, 1408),
        (Product(0, 8, 8, 8, True, True), 2, 0),
    ],
)
def test_formula_gives_what_was_measured(
    product: Product, threads: int, scratch_bytes: int
) -> None:
    assert product_scratch_bytes(product, threads) == scratch_bytes
