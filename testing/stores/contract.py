"""Contract of every backend of the log. A backend's test module subclasses `StoreContract`.

    class TestSqliteStore(StoreContract):
        opener = "def open_log(place): ..."

        @pytest.fixture(scope="class")
        @classmethod
        def new_place(cls): ...

Nothing here knows which database is below. Processes are real: they run the same opener as source
text, meet at a log that none of them has opened yet, and are killed by SIGKILL.
"""

from __future__ import annotations

from testing.stores.appends import Appends
from testing.stores.example_events import REGISTRY, ROOT, Counted, Noted, assert_chained, keys, new
from testing.stores.groups import Groups
from testing.stores.processes import Processes
from testing.stores.reads import Reads

__all__ = ["REGISTRY", "ROOT", "Counted", "Noted", "StoreContract", "assert_chained", "keys", "new"]


class StoreContract(Appends, Groups, Reads, Processes):
    """Every test of the contract."""
