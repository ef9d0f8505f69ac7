"""Diagrams of one message: its way, its states, and where it is after a crash."""

from website.pictures.drawing import Picture


def flow() -> Picture:
    """From the program to the consumer."""
    drawn = Picture(
        "The way of a delayed message",
        "Your program sends a message, and it is committed as a row of a table in your database, in the same "
        "transaction as your data. When it is due, a dispatcher claims the row and publishes the message to "
        "RabbitMQ. After RabbitMQ has confirmed the message, the dispatcher removes the row. The consumer reads "
        "the message from its queue.",
        924,
        316,
    )
    drawn.frame((176, 22, 148, 152), "Your database", "database")
    drawn.frame((584, 22, 148, 152), "RabbitMQ", "broker")
    program = drawn.box((16, 62, 112, 92), "Program", "order and", "message")
    table = drawn.box((188, 58, 124, 100), "Table", "delayed", "messages", kind="database", shape="store")
    dispatcher = drawn.box((396, 62, 116, 92), "Dispatcher", "a thread or", "a process")
    queue = drawn.box((596, 62, 124, 92), "Queue", "of the", "consumer", kind="broker", shape="queue")
    consumer = drawn.box((804, 62, 104, 92), "Consumer", "any", "language")
    drawn.arrow((program.right, 108), (table.x, 108))
    drawn.label((152, 100), "send")
    drawn.arrow((table.right, 92), (dispatcher.x, 92))
    drawn.label((360, 84), "claim")
    drawn.arrow((dispatcher.x, 132), (table.right, 132), dashed=True)
    drawn.label((360, 150), "remove")
    drawn.arrow((dispatcher.right, 92), (queue.x, 92))
    drawn.label((548, 84), "publish")
    drawn.arrow((queue.x, 132), (dispatcher.right, 132), dashed=True, kind="good")
    drawn.label((548, 150), "confirm", kind="good")
    drawn.arrow((queue.right, 108), (consumer.x, 108))
    drawn.label((768, 100), "consume")
    drawn.mark((table.x, table.y + 4), "1", "database")
    drawn.mark((dispatcher.x, dispatcher.y), "2", "plain")
    drawn.mark((queue.x, queue.y), "3", "good")
    steps = (
        (24, "1", "database", "Committed", "The message is a row, stored in", "the same transaction as your data."),
        (334, "2", "plain", "Due", "Its time has come by the clock of", "the database. A dispatcher claims it."),
        (654, "3", "good", "Confirmed", "RabbitMQ has the message.", "Then the row is removed."),
    )
    for x, number, kind, name, first, second in steps:
        drawn.mark((x + 10, 216), number, kind)
        drawn.heading((x + 30, 221), name, kind)
        drawn.label((x, 247), first, second, kind="ink", anchor="start")
    drawn.label(
        (24, 297),
        "Without a confirm the row stays. After a crash a message may arrive twice, with the same message id.",
        anchor="start",
    )
    return drawn


def states() -> Picture:
    """What moves a message from one state to the next."""
    drawn = Picture(
        "The states of a message",
        "A committed message is waiting. When it is due, a dispatcher claims it. If RabbitMQ confirms it, it is "
        "delivered and its row is removed. If it is not confirmed, or the dispatcher dies, it is waiting again. "
        "If RabbitMQ refuses it, it is failing until its next attempt. After the last retry, or if there is no "
        "such queue, it goes to the error queue, from which you replay or discard it. A message of a paused "
        "destination is paused until you resume the destination. You can cancel a message that is waiting, "
        "failing or paused.",
        900,
        468,
    )
    paused = drawn.box((90, 24, 170, 68), "Paused", "its destination", "is paused")
    waiting = drawn.box((90, 184, 170, 68), "Waiting", "a row, not due or", "not claimed yet", kind="database")
    cancelled = drawn.box((90, 344, 170, 68), "Cancelled", "the row is", "removed")
    claimed = drawn.box((400, 184, 160, 68), "Claimed", "one dispatcher", "publishes it", kind="database")
    failing = drawn.box((400, 344, 160, 68), "Failing", "a row, until its", "next attempt", kind="database")
    delivered = drawn.box((712, 184, 164, 68), "Delivered", "in its queue; the", "row is removed", kind="good")
    error = drawn.box((712, 344, 164, 68), "Error queue", "in RabbitMQ, with", "the reason", kind="bad")
    drawn.arrow((20, 218), (waiting.x, 218))
    drawn.label((50, 196), "send,")
    drawn.label((50, 210), "commit")
    drawn.arrow((150, waiting.y), (150, paused.bottom))
    drawn.label((144, 142), "pause", anchor="end")
    drawn.arrow((200, paused.bottom), (200, waiting.y))
    drawn.label((206, 142), "resume", anchor="start")
    drawn.arrow((175, waiting.bottom), (175, cancelled.y), kind="bad")
    drawn.label((169, 302), "cancel", kind="bad", anchor="end")
    drawn.arrow((waiting.right, 204), (claimed.x, 204))
    drawn.label((330, 180), "due: a dispatcher")
    drawn.label((330, 195), "claims it")
    drawn.arrow((claimed.x, 234), (waiting.right, 234), dashed=True)
    drawn.label((330, 252), "not confirmed,", "or the dispatcher", "dies")
    drawn.arrow((claimed.right, 204), (delivered.x, 204), kind="good")
    drawn.label((640, 195), "RabbitMQ confirms", kind="good")
    drawn.arrow((455, claimed.bottom), (455, failing.y), kind="bad")
    drawn.label((449, 302), "refused", kind="bad", anchor="end")
    drawn.arrow((505, failing.y), (505, claimed.bottom))
    drawn.label((511, 330), "next attempt", anchor="start")
    drawn.arrow((failing.x, 378), (cancelled.right, 378), kind="bad")
    drawn.label((330, 370), "cancel", kind="bad")
    drawn.arrow((claimed.right, 232), (640, 232), (640, 378), (error.x, 378), kind="bad")
    drawn.label((632, 268), "no such queue,", "or the last", "retry is refused", kind="bad", anchor="end")
    drawn.arrow((794, error.y), (794, delivered.bottom))
    drawn.label((800, 302), "replay", anchor="start")
    drawn.label(
        (90, 440), "Until a dispatcher claims a message, you can list, cancel and reschedule it.", anchor="start"
    )
    drawn.label((794, 430), "discard: removed for good")
    return drawn


def crash() -> Picture:
    """Where a message is if the process dies."""
    moments = (
        ("send", "Nowhere.", "The transaction is", "rolled back: your", "program sends", "again."),
        ("commit", "In the table.", "A dispatcher sends", "it when it is due."),
        ("claim", "In the table.", "The claim ends, and", "a dispatcher claims", "it again."),
        ("publish", "In the table,", "perhaps also in the", "queue. It is sent", "again."),
        ("confirm", "In both.", "It is sent again,", "and arrives twice,", "with the same id."),
        ("remove", "In the queue.", "RabbitMQ keeps it", "for the consumer."),
    )
    drawn = Picture(
        "Where a message is if the process dies",
        "If the process dies after send and before the commit, the message is nowhere: the transaction is rolled "
        "back. After the commit and after the claim it is in the table, and a dispatcher sends it. After publish "
        "it is in the table and perhaps in the queue. After the confirm and before the removal it is in both, so "
        "it arrives twice with the same message id. After the removal it is in the queue only.",
        924,
        292,
    )
    left, column = 18, 148
    for number, (step, *lines) in enumerate(moments):
        x = left + number * column
        drawn.rule((x, 48), (x, 272))
        drawn.mark((x + 16, 64), str(number + 1), "plain")
        drawn.heading((x + 34, 69), step)
        drawn.heading((x + 6, 192), lines[0])
        drawn.label((x + 6, 212), *lines[1:], kind="ink", anchor="start")
    drawn.label(
        (left, 32), "If the process dies after this step and before the next one, the message is here:", anchor="start"
    )
    drawn.bar((left + column, 88, column * 4 - 4, 30), "a row of the table", "database")
    drawn.bar((left + 3 * column, 130, column - 4, 30), "perhaps a copy", "broker", dashed=True)
    drawn.bar((left + 4 * column, 130, 2 * column - 14, 30), "in the queue of RabbitMQ", "broker")
    return drawn
