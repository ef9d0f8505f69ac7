"""Other people's transactions, in which a store can write."""

from delaystore.stores.sql.targets._opening import target_of
from delaystore.stores.sql.targets.abc import Target
from delaystore.stores.sql.targets.driver import Lender, Loan, LoanTarget

__all__ = ["Lender", "Loan", "LoanTarget", "Target", "target_of"]
