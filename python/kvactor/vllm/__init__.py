"""A connector for vLLM: kv_connector KvactorConnector, kv_connector_module_path kvactor.vllm.

It was tried with the versions in `TRIED`. docs/vllm.md is the guide.
"""

from kvactor.vllm.versions import TRIED, UntriedVersionError

try:
    from kvactor.vllm.connector import KvactorConnector
except ImportError as error:
    import vllm

    raise UntriedVersionError(
        f"kvactor was tried with vLLM {' and '.join(TRIED)}, not with {vllm.__version__}, "
        f"which has moved or removed what a connector imports: {error}"
    ) from error

__all__ = ["TRIED", "KvactorConnector", "UntriedVersionError"]
