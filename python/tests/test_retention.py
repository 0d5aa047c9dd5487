"""The two forms of a retention."""

import pytest

from kvactor import Range, Retention
from kvactor.retention import retention, tensorrt_llm


def test_tensorrt_llm_names():
    config = {
        "token_range_retention_configs": [
            {"token_start": 16, "token_end": None, "priority": 10},
            {"token_start": 0, "token_end": 16, "duration_ms": 60000},
        ],
        "decode_retention_priority": 20,
        "decode_duration_ms": 1000,
        "transfer_mode": "DRAM",
        "directory": "",
    }
    want = Retention((Range(0, 16, 35, 60000), Range(16, None, 10)), 20, 1000)
    assert tensorrt_llm(config) == want
    same = {
        "ranges": [
            {"start": 0, "end": 16, "priority": 35, "duration_ms": 60000},
            {"start": 16, "priority": 10},
        ],
        "decode_priority": 20,
        "decode_duration_ms": 1000,
    }
    assert retention(same) == want
    assert tensorrt_llm(None) is None
    assert tensorrt_llm({"decode_retention_policy": 5}) == Retention((), 5)
    assert tensorrt_llm({"decode_duration_ms": 5}) == Retention((), 35, 5)


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ([], "kv_cache_retention_config is not an object"),
        ({"ranges": []}, "kv_cache_retention_config.ranges is unknown"),
        ({"transfer_mode": "GDS"}, "kv_cache_retention_config.transfer_mode is not supported"),
        ({"directory": "/x"}, "kv_cache_retention_config.directory is not supported"),
        ({"token_range_retention_configs": {}}, "token_range_retention_configs is not a list"),
        (
            {"token_range_retention_configs": [{"priority": 1}]},
            r"token_range_retention_configs\[0\] needs a start",
        ),
        (
            {"token_range_retention_configs": [{"token_start": 0, "start": 0}]},
            r"token_range_retention_configs\[0\].start is unknown",
        ),
        (
            {"token_range_retention_configs": [{"token_start": 0}, {"token_start": 8}]},
            "token_range_retention_configs has two that overlap",
        ),
        (
            {"decode_retention_policy": 5, "decode_retention_priority": 6},
            "decode_retention_policy and decode_retention_priority, which differ",
        ),
        ({"decode_retention_policy": 101}, "decode_retention_policy is not 0 to 100"),
    ],
)
def test_refused(config, wrong):
    with pytest.raises(ValueError, match=wrong):
        tensorrt_llm(config)
