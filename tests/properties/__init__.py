import pytest

pytest.register_assert_rewrite("tests.properties.world", "tests.properties.ending")
