"""Schedule a message in the transaction that changes your own tables: both happen, or neither.

Run it with `python examples/business_transaction.py`.
"""

import tempfile
from datetime import timedelta
from pathlib import Path

from sqlalchemy import String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from delaystore import DelayedDelivery, SqlDelayedMessageStore


class Base(DeclarativeBase):
    """The application's tables."""


class Order(Base):
    """An order that must be paid within three days."""

    __tablename__ = "orders"
    number: Mapped[str] = mapped_column(String(20), primary_key=True)


def place_order(session: Session, delivery: DelayedDelivery, number: str) -> str:
    """Keep the order and schedule its reminder; the caller commits."""
    session.add(Order(number=number))
    session.flush()  # a number that is taken fails here, before anything is scheduled
    return delivery.enlist(session).send("billing", number.encode(), delay=timedelta(days=3))


def main() -> None:
    """Place one order, and fail to place another."""
    with tempfile.TemporaryDirectory() as directory:
        engine = create_engine(f"sqlite:///{Path(directory) / 'shop.db'}")
        Base.metadata.create_all(engine)
        delivery = DelayedDelivery("sales", SqlDelayedMessageStore(engine))
        delivery.setup_infrastructure()  # when the program starts: tables cannot be made inside the transaction
        with Session(engine) as session, session.begin():
            place_order(session, delivery, "A-1")
        print("after the commit:", delivery.count(), "waiting")
        try:
            with Session(engine) as session, session.begin():
                place_order(session, delivery, "A-2")
                raise RuntimeError("the card was declined")
        except RuntimeError as error:
            print("rolled back:", error)
        print("after the rollback:", delivery.count(), "waiting")
        delivery.close()
        engine.dispose()


if __name__ == "__main__":
    main()
