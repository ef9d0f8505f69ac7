"""The whole of the store contract."""

from delaystore.testing._kit.audit import AuditOfKeysTests, AuditTests
from delaystore.testing._kit.batches import BatchTests
from delaystore.testing._kit.concurrency import ConcurrencyTests
from delaystore.testing._kit.counts import CountTests
from delaystore.testing._kit.crashes import CrashTests
from delaystore.testing._kit.due import DueTests
from delaystore.testing._kit.failures import FailureTests
from delaystore.testing._kit.infrastructure import InfrastructureTests
from delaystore.testing._kit.keys import KeyTests
from delaystore.testing._kit.limits import LimitTests
from delaystore.testing._kit.machine import StateMachineTests
from delaystore.testing._kit.management import ManagementTests
from delaystore.testing._kit.operable_machine import OperableMachineTests
from delaystore.testing._kit.operations import OperationTests
from delaystore.testing._kit.pauses import PauseTests
from delaystore.testing._kit.reports import IngressReportTests, ReportTests
from delaystore.testing._kit.round_trip import RoundTripTests
from delaystore.testing._kit.search import SearchTests
from delaystore.testing._kit.sessions import SessionTests
from delaystore.testing._kit.settling import SettlingTests
from delaystore.testing._kit.taken import TakenIdTests
from delaystore.testing._kit.transactions import TransactionTests


class StoreConformance(
    DueTests,
    SettlingTests,
    TakenIdTests,
    RoundTripTests,
    BatchTests,
    TransactionTests,
    ConcurrencyTests,
    CrashTests,
    InfrastructureTests,
    SessionTests,
    ManagementTests,
    KeyTests,
    SearchTests,
    CountTests,
    OperationTests,
    PauseTests,
    LimitTests,
    FailureTests,
    ReportTests,
    IngressReportTests,
    AuditTests,
    AuditOfKeysTests,
    StateMachineTests,
    OperableMachineTests,
):
    """The contracts of `delaystore.stores.abc` and `.operable` as a pytest class, for authors of stores to subclass.

        class TestMyStore(StoreConformance):
            capabilities = StoreCapabilities(transactions=True, batches=True)

            @pytest.fixture
            def store_factory(self, tmp_path):
                return lambda: MyStore(tmp_path / "messages")

    `capabilities` decides which tests there are; some of its flags ask for one more fixture, see `StoreTests`.
    """
