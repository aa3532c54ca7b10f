"""The cache: what went in comes out, in order, and nothing else; errors that name the numbers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.cache import DecoderCache, KVCache


def keys_and_values(*shape: int, d_v: int = 3, **options):
    return torch.randn(*shape, 4, **options), torch.randn(*shape, d_v, **options)


class TestKVCache:
    @given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6))
    def test_holds_what_came_in_order(self, lengths):
        k, v = keys_and_values(2, 3, sum(lengths))
        cache = KVCache(max(sum(lengths), 1))
        for key, value in zip(k.split(lengths, 2), v.split(lengths, 2), strict=True):
            keys, values = cache.update(key, value)
            assert torch.equal(keys, k[:, :, : cache.length])
            assert torch.equal(values, v[:, :, : cache.length])
        assert cache.length == sum(lengths)

    def test_sets_its_memory_aside_once_and_returns_views_of_it(self, device):
        cache = KVCache(6)
        (first, _), (second, _) = (cache.update(*keys_and_values(2, 3, 2, device=device)) for _ in range(2))
        assert first.data_ptr() == second.data_ptr() == cache.keys.data_ptr()
        assert first.untyped_storage().nbytes() == 2 * 3 * 6 * 4 * 4  # B · H_kv · max_length · d_k numbers of 4 bytes

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
    def test_takes_on_the_dtype_of_what_comes(self, dtype):
        keys, values = KVCache(3).update(*keys_and_values(1, 1, 2, dtype=dtype))
        assert keys.dtype == values.dtype == dtype

    def test_reorder_takes_rows_and_the_next_step_follows_them(self):
        cache, (k, v) = KVCache(4), keys_and_values(3, 1, 2)
        cache.update(k, v)
        cache.reorder(torch.tensor([2, 0, 0, 1]))
        new = keys_and_values(4, 1, 1)
        keys, values = cache.update(*new)
        assert torch.equal(keys, torch.cat((k[[2, 0, 0, 1]], new[0]), dim=2))
        assert torch.equal(values, torch.cat((v[[2, 0, 0, 1]], new[1]), dim=2))

    def test_reset_makes_room_for_another_batch(self):
        cache = KVCache(2)
        cache.update(*keys_and_values(3, 1, 2))
        cache.reset()
        assert (cache.length, cache.keys, cache.values) == (0, None, None)
        new = keys_and_values(1, 2, 1, dtype=torch.float64)
        assert torch.equal(cache.update(*new)[0], new[0])

    def test_when_it_is_full_the_error_names_what_it_holds_and_what_came(self):
        cache = KVCache(4)
        cache.update(*keys_and_values(1, 1, 3))
        with pytest.raises(ValueError, match=r"full: 3 of 4 positions are taken and 2 more came.*max_length=5"):
            cache.update(*keys_and_values(1, 1, 2))
        assert cache.length == 3

    @pytest.mark.parametrize("shape", [(1, 1, 1), (2, 2, 1)])
    def test_another_batch_or_number_of_heads_is_an_error(self, shape):
        cache = KVCache(4)
        cache.update(*keys_and_values(2, 1, 2))
        with pytest.raises(ValueError, match=r"holds .* \(2, 1, 2, 4\) .* keys \(.*, 4\) and values .* reset"):
            cache.update(*keys_and_values(*shape))
        assert cache.length == 2

    def test_unequal_numbers_of_keys_and_values_are_an_error(self):
        with pytest.raises(ValueError, match=r"got \(1, 1, 2, 4\) and \(1, 1, 1, 3\)"):
            KVCache(4).update(keys_and_values(1, 1, 2)[0], keys_and_values(1, 1, 1)[1])

    def test_what_is_refused_at_first_leaves_nothing_behind(self):
        cache = KVCache(4)
        with pytest.raises(ValueError, match="the same but for d"):
            cache.update(keys_and_values(2, 1, 3)[0], keys_and_values(2, 1, 2)[1])
        with pytest.raises(ValueError, match=r"\(1, 3, 4\)"):
            cache.update(*(x[0] for x in keys_and_values(1, 1, 3)))
        assert cache.length == 0
        cache.update(*keys_and_values(3, 1, 1))

    def test_another_dtype_is_an_error_and_not_rounded(self):
        cache = KVCache(4)
        cache.update(*keys_and_values(1, 1, 1, dtype=torch.float16))
        with pytest.raises(ValueError, match=r"holds torch\.float16 and cannot take on torch\.float32.*autocast"):
            cache.update(*keys_and_values(1, 1, 1, dtype=torch.float32))
        assert cache.length == 1

    def test_a_gradient_that_would_be_lost_is_an_error(self):
        key, value = keys_and_values(1, 1, 1, requires_grad=True)
        with pytest.raises(RuntimeError, match=r"no gradient.*torch\.no_grad"):
            KVCache(1).update(key, value)
        with torch.no_grad():
            KVCache(1).update(key, value)

    def test_filled_in_inference_mode_it_goes_on_outside(self):
        cache = KVCache(3)
        with torch.inference_mode():
            cache.update(*keys_and_values(1, 1, 1))
            cache.reorder(torch.tensor([0, 0]))
        cache.update(*keys_and_values(2, 1, 1))
        assert cache.length == 2

    def test_a_length_below_one_is_an_error(self):
        with pytest.raises(ValueError, match="at least 1, got 0"):
            KVCache(0)


class TestDecoderCache:
    @staticmethod
    def filled(memory_length=None) -> DecoderCache:
        cache = DecoderCache(2, 5, memory_length)
        for kv in (*cache.self_attention, *(c for c in cache.cross_attention if c is not None)):
            kv.update(*keys_and_values(3, 1, 2))
        return cache

    def test_gives_each_layer_its_own(self):
        cache = DecoderCache(2, 5, 7)
        layers = [cache.of_layer(i) for i in range(2)]
        assert all(layer.keys() == {"cache", "memory_cache"} for layer in layers)
        assert (layers[0]["cache"].max_length, layers[0]["memory_cache"].max_length) == (5, 7)
        assert len({id(kv) for layer in layers for kv in layer.values()}) == 4
        assert DecoderCache(2, 5).of_layer(0).keys() == {"cache"}

    @pytest.mark.parametrize("memory", [True, False])
    def test_reorder_moves_every_layer_and_the_memory_if_asked(self, memory):
        cache, order = self.filled(4), torch.tensor([2, 2, 0])
        own, cross = ([kv.keys.clone() for kv in kind] for kind in (cache.self_attention, cache.cross_attention))
        cache.reorder(order, memory=memory)
        assert all(torch.equal(kv.keys, old[order]) for kv, old in zip(cache.self_attention, own, strict=True))
        expected = [old[order] if memory else old for old in cross]
        assert all(torch.equal(kv.keys, old) for kv, old in zip(cache.cross_attention, expected, strict=True))

    @pytest.mark.parametrize("memory_length", [None, 4])
    def test_length_and_reset_speak_of_all_layers(self, memory_length):
        cache = self.filled(memory_length)
        assert cache.length == 2
        cache.reset()
        assert cache.length == 0
        assert all(kv is None or kv.length == 0 for kv in cache.self_attention + cache.cross_attention)

    def test_layers_that_a_broken_step_left_unequal_are_an_error(self):
        cache = self.filled()
        cache.self_attention[0].update(*keys_and_values(3, 1, 1))
        with pytest.raises(ValueError, match=r"\[3, 2\].*reset"):
            cache.length  # noqa: B018
        cache.reset()
        assert cache.length == 0

    @pytest.mark.parametrize(
        ("cache", "message"), [(DecoderCache(3, 5), "3 layers .* stack of 2"), (DecoderCache(2, 5, 4), "memory_length")]
    )
    def test_serves_the_stack_that_it_was_made_for_alone(self, cache, message):
        with pytest.raises(ValueError, match=message):
            cache.check(2, has_memory=False)
        DecoderCache(2, 5).check(2, has_memory=True)

    def test_no_layers_is_an_error(self):
        with pytest.raises(ValueError, match="num_layers is at least 1, got 0"):
            DecoderCache(0, 5)
