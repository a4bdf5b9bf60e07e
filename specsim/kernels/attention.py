"""Attention of ragged queries to keys and values that lie in blocks of a pool.

Axes in shape brackets: N packed tokens, R requests of the pass, Hq query heads, Hkv key and value heads, d numbers of
a head, M logical blocks of a request.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from specsim.core import Array
from specsim.errors import InputError


def ragged_paged_attention(
    query: Array,
    key_pool: Array,
    value_pool: Array,
    block_table: Array,
    query_start: Array,
    context: Array,
    scale: float,
) -> Array:
    """Let every query see the keys of its own request up to its own position.

    Query j of request r stands at position context[r] - count[r] + j; its head h reads key head h // (Hq / Hkv).
    The softmax is taken in float32, in float64 where the queries are float64.

    query        [N, Hq, d] float, packed as `specsim.kernels.pack` does
    key_pool     [num_blocks, block_size, Hkv, d] float, the queries' own keys already in it
    value_pool   [num_blocks, block_size, Hkv, d] float
    block_table  [R, M] int32 or int64, physical block of each logical block of each request
    query_start  [R + 1] int64, first row of each request, and behind them the number of tokens fed
    context      [R] int64, keys of each request, its own queries' included
    scale        factor on the scores, finite; 1 / sqrt(d) as a rule
    returns      [N, Hq, d], of the queries' dtype; 0 behind row query_start[R]
    Raises       InputError for shapes that do not fit together

    Source: Kwon et al. (arXiv 2309.06180), equation 4; Ainslie et al. (arXiv 2305.13245) for shared key heads.
    """
    check_attention(query, key_pool, value_pool, block_table, query_start, context)
    xp = array_namespace(query, key_pool, value_pool, block_table, query_start, context)
    outputs = []
    for request in range(context.shape[0]):
        first, after, length = int(query_start[request]), int(query_start[request + 1]), int(context[request])
        if after == first:
            continue
        blocks = block_table[request, : -(-length // key_pool.shape[1])]
        keys, values = (_gathered(pool, blocks, xp)[:length, ...] for pool in (key_pool, value_pool))
        outputs.append(_attend(query[first:after, ...], keys, values, scale, xp))
    fed = int(query_start[-1])
    outputs.append(xp.zeros((query.shape[0] - fed, *query.shape[1:]), dtype=query.dtype, device=query.device))
    return xp.concat(outputs, axis=0)


def _gathered(pool: Array, blocks: Array, xp: Any) -> Array:
    """[blocks * block_size, Hkv, d], a request's keys or values in order."""
    return xp.reshape(xp.take(pool, blocks, axis=0), (-1, *pool.shape[2:]))


def _attend(query: Array, keys: Array, values: Array, scale: float, xp: Any) -> Array:
    """[count, Hq, d], the last `count` positions of one request, each over the keys up to itself."""
    wide = xp.float64 if query.dtype == xp.float64 else xp.float32
    count, num_heads, head_dim = query.shape
    length, num_kv_heads, _ = keys.shape
    grouped = xp.reshape(xp.astype(query, wide), (count, num_kv_heads, num_heads // num_kv_heads, head_dim))
    grouped = xp.permute_dims(grouped, (1, 2, 0, 3))
    columns = xp.permute_dims(xp.astype(keys, wide), (1, 2, 0))[:, None, :, :]
    rows = xp.permute_dims(xp.astype(values, wide), (1, 0, 2))[:, None, :, :]
    scores = xp.matmul(grouped, columns) * scale
    position = xp.arange(length - count, length, device=query.device)
    visible = xp.arange(length, device=query.device)[None, :] <= position[:, None]
    scores = xp.where(visible, scores, -xp.inf)
    weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    weights = weights / xp.sum(weights, axis=-1, keepdims=True)
    mixed = xp.permute_dims(xp.matmul(weights, rows), (2, 0, 1, 3))
    return xp.astype(xp.reshape(mixed, (count, num_heads, head_dim)), query.dtype)


def store_kv(key: Array, value: Array, key_pool: Array, value_pool: Array, kv_index: Array) -> None:
    """Write the keys and values of packed tokens into the pools, in place.

    Indices that occur twice, as those of rows without a token do, keep one of their writers, whichever.
    Assigning through index arrays is more than the array standard has; numpy and torch agree on it.

    key         [N, Hkv, d] float, of the pools' dtype
    value       [N, Hkv, d] float
    key_pool    [num_blocks, block_size, Hkv, d] float, written
    value_pool  [num_blocks, block_size, Hkv, d] float, written
    kv_index    [N] int64, block * block_size + place in the block
    Raises      InputError for shapes or dtypes that do not fit together
    """
    check_store(key, value, key_pool, value_pool, kv_index)
    block_size = key_pool.shape[1]
    block, place = kv_index // block_size, kv_index % block_size
    key_pool[block, place] = key
    value_pool[block, place] = value


def check_attention(
    query: Array, key_pool: Array, value_pool: Array, block_table: Array, query_start: Array, context: Array
) -> None:
    """Refuse arguments of `ragged_paged_attention` that do not fit together, by shape alone.

    Raises   InputError
    """
    if len(query.shape) != 3 or len(key_pool.shape) != 4 or key_pool.shape != value_pool.shape:
        raise InputError(
            f"query {tuple(query.shape)}, pools {tuple(key_pool.shape)} and {tuple(value_pool.shape)}: "
            "[N, Hq, d] and twice [num_blocks, block_size, Hkv, d] are allowed"
        )
    if query.shape[2] != key_pool.shape[3] or query.shape[1] % key_pool.shape[2]:
        raise InputError(
            f"query heads {query.shape[1]} of {query.shape[2]}, key heads {key_pool.shape[2]} of {key_pool.shape[3]}: "
            "as large, and a whole number of query heads a key head, are allowed"
        )
    requests = context.shape[0]
    if len(block_table.shape) != 2 or block_table.shape[0] != requests or tuple(query_start.shape) != (requests + 1,):
        raise InputError(
            f"block_table {tuple(block_table.shape)}, query_start {tuple(query_start.shape)}, "
            f"context {tuple(context.shape)}: [R, M], [R + 1] and [R] are allowed"
        )


def check_store(key: Array, value: Array, key_pool: Array, value_pool: Array, kv_index: Array) -> None:
    """Refuse arguments of `store_kv` that do not fit together, by shape and dtype alone.

    Raises   InputError
    """
    wanted = (*kv_index.shape, *key_pool.shape[2:])
    if key_pool.shape != value_pool.shape or tuple(key.shape) != wanted or tuple(value.shape) != wanted:
        raise InputError(
            f"key {tuple(key.shape)}, value {tuple(value.shape)}, pools {tuple(key_pool.shape)} and "
            f"{tuple(value_pool.shape)}, kv_index {tuple(kv_index.shape)}: twice [N, Hkv, d], "
            "twice [num_blocks, block_size, Hkv, d] and [N] are allowed"
        )
    if not key.dtype == value.dtype == key_pool.dtype == value_pool.dtype:
        raise InputError(
            f"key {key.dtype}, value {value.dtype}, pools {key_pool.dtype} and {value_pool.dtype}: one dtype is allowed"
        )
