import numpy as np
import pytest

from kvactor import memory
from kvactor.memory import Blocks, copy


def random(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_contiguous_blocks_are_one_run():
    blocks = Blocks.of_array(random((10, 3, 4)))
    assert (blocks.count, blocks.run, len(blocks.offsets), blocks.block_bytes) == (10, 48, 1, 48)


def test_copy_moves_blocks_to_their_places():
    src, dst = random((10, 3, 4)), np.zeros((6, 12), np.float32)
    n = copy(Blocks.of_array(dst), [5, 0, 1], Blocks.of_array(src), [2, 7, 8])
    assert n == 3 * 48
    np.testing.assert_array_equal(dst[[5, 0, 1]], src[[2, 7, 8]].reshape(3, 12))
    assert not dst[2:5].any()


def test_blocks_of_several_runs_keep_their_order():
    whole = random((4, 10, 8, 2))  # heads, blocks, tokens, elements
    src = whole.transpose(1, 0, 2, 3)  # blocks first: a run for each head
    blocks = Blocks.of_array(src)
    assert (blocks.run, len(blocks.offsets)) == (64, 4)
    dst = np.zeros((10, 64), np.float32)
    copy(Blocks.of_array(dst), range(10), blocks, range(9, -1, -1))
    np.testing.assert_array_equal(dst, src[::-1].reshape(10, 64))
    back = np.zeros_like(whole)
    copy(
        Blocks.of_array(back.transpose(1, 0, 2, 3)),
        range(9, -1, -1),
        Blocks.of_array(dst),
        range(10),
    )
    np.testing.assert_array_equal(back, whole)


def test_runs_of_different_lengths_on_both_sides():
    src = random((5, 6, 4)).transpose(1, 0, 2)  # runs of 16 bytes
    wide = np.zeros((6, 2, 40), np.float32)
    dst = wide[:, :, :10]  # runs of 40 bytes
    copy(Blocks.of_array(dst), range(6), Blocks.of_array(src), range(6))
    np.testing.assert_array_equal(dst.reshape(6, 20), src.reshape(6, 20))
    assert not wide[:, :, 10:].any()


def test_large_batches_are_copied_by_threads(monkeypatch):
    monkeypatch.setattr(memory, "_workers", 3)
    monkeypatch.setattr(memory, "_threads", None)
    src, dst = random((64, 1 << 15)), np.zeros((64, 1 << 15), np.float32)
    order = np.random.default_rng(1).permutation(64)
    copy(Blocks.of_array(dst), range(64), Blocks.of_array(src), order)
    np.testing.assert_array_equal(dst, src[order])


def test_blocks_out_of_range_are_refused():
    a = Blocks.of_array(random((4, 2)))
    for index in ([4], [-1]):
        with pytest.raises(IndexError):
            copy(a, [0], a, index)


def test_sizes_must_agree():
    a, b = Blocks.of_array(random((4, 2))), Blocks.of_array(random((4, 3)))
    with pytest.raises(ValueError, match="12 bytes to 8 bytes"):
        copy(a, [0], b, [0])
    with pytest.raises(ValueError, match="2 blocks to 1"):
        copy(a, [0], a, [0, 1])


def test_tensors():
    torch = pytest.importorskip("torch")
    src = torch.arange(48, dtype=torch.bfloat16).reshape(2, 6, 4).transpose(0, 1)
    dst = torch.zeros(6, 2, 4, dtype=torch.bfloat16)
    copy(Blocks.of_tensor(dst), range(6), Blocks.of_tensor(src), range(6))
    assert torch.equal(dst, src)
