"""Settings and the real model, shared by all tests."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The SmolLM2 checkpoint, fetched unless it is cached; tests that need it fail without it."""
    from colibri.models import fetch

    return fetch("smollm2")
