"""Diagrams of RabbitMQ's exchanges and queues: the ingress, the switch from the plugin, and a cascade."""

from website.pictures.drawing import Picture


def ingress() -> Picture:
    """The exchanges and queues of an ingress."""
    drawn = Picture(
        "An ingress and its exchanges",
        "A program publishes to the exchange orders, which leads to the queue orders.ingress. The ingress stores "
        "each message in the table. When it is due, the dispatcher publishes it to the exchange orders.out, to "
        "which your queues are bound. A message that cannot be delayed goes to orders.ingress.rejected. A message "
        "whose time to live ends in the ingress queue goes to orders.ingress.expired.",
        920,
        424,
    )
    drawn.frame((136, 20, 648, 214), "RabbitMQ", "broker")
    drawn.frame((262, 268, 476, 136), "delaystore")
    publisher = drawn.box((14, 50, 98, 68), "Publisher", "any", "language")
    exchange = drawn.box((152, 58, 104, 52), "orders", "exchange", kind="broker", shape="exchange", code=True)
    queue = drawn.box((292, 58, 160, 52), "orders.ingress", "queue", kind="broker", shape="queue", code=True)
    out = drawn.box((490, 58, 116, 52), "orders.out", "exchange", kind="broker", shape="exchange", code=True)
    yours = drawn.box((640, 58, 130, 52), "billing", "your queue", kind="broker", shape="queue", code=True)
    consumer = drawn.box((808, 50, 98, 68), "Consumer", "any", "language")
    expired = drawn.box(
        (150, 162, 206, 54), "orders.ingress.expired", "time to live ended", kind="bad", shape="queue", code=True
    )
    rejected = drawn.box(
        (384, 162, 216, 54), "orders.ingress.rejected", "cannot be delayed", kind="bad", shape="queue", code=True
    )
    reader = drawn.box((280, 302, 122, 76), "Ingress", "stores each", "message")
    table = drawn.box((446, 296, 112, 88), "Table", "your", "database", kind="database", shape="store")
    dispatcher = drawn.box((602, 302, 120, 76), "Dispatcher", "publishes due", "messages")
    drawn.arrow((publisher.right, 84), (exchange.x, 84))
    drawn.arrow((exchange.right, 84), (queue.x, 84))
    drawn.arrow((370, queue.bottom), (370, reader.y))
    drawn.label((362, 254), "consume", anchor="end")
    drawn.arrow((310, queue.bottom), (310, expired.y), kind="bad", dashed=True)
    drawn.arrow((394, reader.y), (394, rejected.bottom), kind="bad", dashed=True)
    drawn.arrow((reader.right, 340), (table.x, 340))
    drawn.label((424, 332), "store")
    drawn.arrow((table.right, 340), (dispatcher.x, 340))
    drawn.label((580, 332), "due")
    drawn.arrow((dispatcher.middle[0], dispatcher.y), (dispatcher.middle[0], 136), (548, 136), (548, out.bottom))
    drawn.label((670, 254), "publish", anchor="start")
    drawn.arrow((out.right, 84), (yours.x, 84))
    drawn.arrow((yours.right, 84), (consumer.x, 84))
    return drawn


def plugin_before() -> Picture:
    """With the delayed-message plugin."""
    drawn = Picture(
        "Before: with the delayed-message plugin",
        "A publisher publishes to the exchange orders of type x-delayed-message. The plugin keeps waiting "
        "messages in a table of one node of RabbitMQ. When they are due, they go to the queues that are bound to "
        "orders.",
        920,
        196,
    )
    drawn.frame((136, 20, 648, 156), "RabbitMQ", "broker")
    publisher = drawn.box((14, 74, 98, 56), "Publisher", "x-delay")
    exchange = drawn.box((160, 74, 152, 56), "orders", "x-delayed-message", kind="broker", shape="exchange", code=True)
    kept = drawn.box(
        (366, 58, 180, 88), "Plugin's table", "on one node: no list,", "no cancel", kind="bad", shape="store"
    )
    yours = drawn.box((624, 74, 138, 56), "billing", "your queue", kind="broker", shape="queue", code=True)
    consumer = drawn.box((808, 74, 98, 56), "Consumer")
    drawn.arrow((publisher.right, 102), (exchange.x, 102))
    drawn.arrow((exchange.right, 102), (kept.x, 102))
    drawn.arrow((kept.right, 102), (yours.x, 102))
    drawn.label((585, 94), "due")
    drawn.arrow((yours.right, 102), (consumer.x, 102))
    return drawn


def plugin_after() -> Picture:
    """With delaystore in its place."""
    drawn = Picture(
        "After: with delaystore",
        "The publisher publishes to the exchange orders with the same header. The exchange leads to the queue "
        "orders.ingress. delaystore stores each message in your database, where you can list, cancel and "
        "reschedule it. When it is due, delaystore publishes it to orders.out, to which your queues are bound. "
        "Publisher, queues and consumers stay as they are.",
        920,
        330,
    )
    drawn.frame((136, 20, 648, 122), "RabbitMQ", "broker")
    drawn.frame((262, 178, 476, 132), "delaystore")
    publisher = drawn.box((14, 62, 98, 56), "Publisher", "x-delay")
    exchange = drawn.box((160, 64, 100, 52), "orders", "exchange", kind="broker", shape="exchange", code=True)
    queue = drawn.box((292, 64, 150, 52), "orders.ingress", "queue", kind="good", shape="queue", code=True)
    out = drawn.box((478, 64, 116, 52), "orders.out", "exchange", kind="good", shape="exchange", code=True)
    yours = drawn.box((624, 62, 138, 56), "billing", "your queue", kind="broker", shape="queue", code=True)
    consumer = drawn.box((808, 62, 98, 56), "Consumer")
    reader = drawn.box((280, 212, 122, 72), "Ingress", "stores each", "message", kind="good")
    table = drawn.box((438, 204, 124, 88), "Table", "list, cancel,", "reschedule", kind="good", shape="store")
    dispatcher = drawn.box((602, 212, 120, 72), "Dispatcher", "publishes due", "messages", kind="good")
    drawn.arrow((publisher.right, 90), (exchange.x, 90))
    drawn.arrow((exchange.right, 90), (queue.x, 90))
    drawn.arrow((367, queue.bottom), (367, reader.y))
    drawn.arrow((reader.right, 248), (table.x, 248))
    drawn.arrow((table.right, 248), (dispatcher.x, 248))
    drawn.label((582, 240), "due")
    drawn.arrow((662, dispatcher.y), (662, 158), (536, 158), (536, out.bottom))
    drawn.arrow((out.right, 90), (yours.x, 90))
    drawn.arrow((yours.right, 90), (consumer.x, 90))
    drawn.label((14, 262), "Green: new.", anchor="start", kind="good")
    drawn.label((14, 278), "Publishers, queues and", "consumers stay.", anchor="start")
    return drawn


def cascade() -> Picture:
    """The levels of NServiceBus' cascade."""
    drawn = Picture(
        "Exchanges and queues of a cascade, from level 27 to the destination",
        "Each level has a topic exchange and a queue. If the level's digit of the routing key is 1, the exchange "
        "gives the message to its queue, where it stays for the level's time, and then goes to the exchange of "
        "the next level. If the digit is 0, the message goes to the next exchange at once. Level 27 delays by "
        "1,553 days, level 26 by 776 days, level 1 by 2 seconds, level 0 by 1 second. The last exchange, "
        "nsb.v2.delay-delivery, gives the message to its destination, or to the queue nsb.v2.delay- "
        "delivery.undeliverable if no destination is bound.",
        924,
        330,
    )
    columns = ((14, "27", "1,553 d 10 h"), (176, "26", "776 d 17 h"), (366, "01", "2 s"), (528, "00", "1 s"))
    width, top, bottom = 130, 62, 198
    drawn.label((16, 34), "Exchanges and queues are called nsb.v2.delay-level-27 and so on.", anchor="start")
    for x, level, time in columns:
        middle = x + width / 2
        drawn.box((x, top, width, 48), f"level-{level}", "exchange", kind="broker", shape="exchange", code=True)
        drawn.box((x, bottom, width, 48), f"level-{level}", time, kind="broker", shape="queue", code=True)
        drawn.arrow((middle, top + 48), (middle, bottom))
        drawn.label((middle - 8, 160), "1", anchor="end", kind="ink")
    for (x, *_), following in ((columns[0], 176), (columns[1], 324), (columns[2], 528), (columns[3], 704)):
        drawn.arrow((x + width, top + 24), (following, top + 24))
        drawn.label((x + width + 14, top + 17), "0", kind="ink")
        drawn.arrow((x + width, bottom + 10), (following + (16 if following != 324 else 8), top + 50), dashed=True)
    drawn.label((336, top + 29), "…")
    drawn.arrow((345, top + 24), (366, top + 24))
    last = drawn.box(
        (704, top, 204, 48), "nsb.v2.delay-delivery", "exchange", kind="broker", shape="exchange", code=True
    )
    yours = drawn.box((730, 150, 152, 48), "destination", "queue or exchange", kind="good")
    lost = drawn.box(
        (712, 252, 196, 58), "…undeliverable", "no destination bound", kind="bad", shape="queue", code=True
    )
    drawn.arrow((last.middle[0], last.bottom), (yours.middle[0], yours.y))
    drawn.label((798, 134), "address", anchor="end")
    drawn.arrow((894, last.bottom), (894, lost.y), dashed=True, kind="bad")
    drawn.label((16, 286), "Solid: the digit of the routing key for this level.", anchor="start")
    drawn.label(
        (16, 302),
        "Dashed: the time of the level is over, and the message is dead-lettered to the next exchange.",
        anchor="start",
    )
    return drawn
