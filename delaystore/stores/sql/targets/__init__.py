"""Other people's transactions, in which a store can write."""

from delaystore.stores.sql.targets._drivers import Lender, Loan, LoanTarget, Target
from delaystore.stores.sql.targets._opening import target_of

__all__ = ["Lender", "Loan", "LoanTarget", "Target", "target_of"]
