"""Tests in lanes: unit, integration, acceptance; golden logs; oracles."""

import pytest

# By their names they are no test modules: without this their asserts would not say what failed.
for part in ("example_events", "appends", "reads", "processes", "contract"):
    pytest.register_assert_rewrite(f"testing.stores.{part}")
pytest.register_assert_rewrite("testing.verification")
