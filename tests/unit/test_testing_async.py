"""AsyncTestDelivery, and what stands in for an AsyncSession."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from delaystore import AsyncDelayedDelivery, DelayedMessage
from delaystore.testing import AsyncFakeTransaction, AsyncTestDelivery


def test_three_days_later_with_a_handler_that_is_awaited() -> None:
    async def program() -> None:
        async with AsyncTestDelivery("sales") as delivery:

            async def remind(message: DelayedMessage) -> None:
                await asyncio.sleep(0)
                await delivery.send("mail", message.body, delay=0)

            delivery.on("reminders", remind)
            await delivery.send("reminders", b"17", delay=timedelta(days=3))
            delivery.assert_sent("reminders", "17", delay=timedelta(days=3))
            assert await delivery.dispatch_due() == []
            delivery.clock.advance(days=3)
            assert [message.destination for message in await delivery.dispatch_due()] == ["reminders", "mail"]
            assert delivery.waiting() == []
            assert len(delivery.delivered("mail")) == 1
            delivery.on("reminders", lambda _: None)
            await delivery.send("reminders", b"18", delay=60)
            assert len(await delivery.dispatch_for(minutes=2)) == 1
            with pytest.raises(AssertionError, match="no such message was sent: to 'shipping'"):
                delivery.assert_sent("shipping")
            with pytest.raises(AssertionError, match="1 sent, where none was expected: to 'mail'"):
                delivery.assert_not_sent("mail")
            assert not (await delivery.health()).running

    asyncio.run(program())


def test_what_is_enlisted_is_sent_with_the_commit() -> None:
    async def place_order(session: Any, delivery: AsyncDelayedDelivery, number: bytes) -> None:
        await delivery.enlist(session).send("reminders", number, delay=60)

    async def program() -> None:
        delivery = AsyncTestDelivery("sales")
        session = AsyncFakeTransaction()
        called: list[str] = []
        await place_order(session, delivery, b"17")
        session.on_rollback(lambda: called.append("rolled back"))
        await session.rollback()
        await place_order(session, delivery, b"18")
        session.on_commit(lambda: called.append("committed"))
        delivery.assert_not_sent()
        await session.commit()
        await session.close()
        delivery.assert_sent("reminders", b"18", delay=60)
        with pytest.raises(RuntimeError, match="declined"):
            async with AsyncFakeTransaction() as session:
                await place_order(session, delivery, b"19")
                raise RuntimeError("the card was declined")
        async with AsyncFakeTransaction() as session:
            await place_order(session, delivery, b"20")
        assert [message.body for message in delivery.waiting()] == [b"18", b"20"]
        assert called == ["rolled back", "committed"]

    asyncio.run(program())
