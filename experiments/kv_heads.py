"""Claim F6: quality and size of the cache over the number of heads of key and value, with 8 heads of the query.

Two tasks, both in width 64: the next character of BBC News (a causal model of two layers, as in `lib/study/positions.py`), and
look-ups by four kinds of names at once, which need keys of four kinds (one layer, `lib/study/kv_heads.py`). The learning rate
is the best on dev data, for each setting. About five minutes on one core; rows that the file holds are not made again.

    python experiments/kv_heads.py                # all that kv_heads.csv does not hold yet
    python experiments/kv_heads.py --only text    # one task

Columns of kv_heads.csv, a row for each training run and part:
    task                        "text" or "four kinds"
    num_heads, num_kv_heads     8; 8, 4, 2 or 1
    steps, lr, seed             of the run
    parameters                  of the attention layers; fewer heads of key and value have fewer
    cache_bytes                 keys and values of one token in all layers, float32, as a cache holds them
    part                        "dev" or "test"
    accuracy, loss              share of right answers, mean cross entropy in nats
    date, machine, python, torch
"""
