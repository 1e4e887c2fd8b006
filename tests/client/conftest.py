"""Workers are started for real here, interpreter and all."""

import pytest
from tests.warm_workers import without_warm_workers

real_workers = pytest.fixture(autouse=True, scope="module")(without_warm_workers)
