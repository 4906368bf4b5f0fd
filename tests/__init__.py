"""Tests in lanes: unit, integration, acceptance; golden logs; oracles."""

import pytest

# The contract is no test module by its name: without this its asserts would not say what failed.
pytest.register_assert_rewrite("testing.store_contract")
