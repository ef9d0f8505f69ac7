"""What docs/how-to/celery.md shows runs as it stands, but for the addresses of servers."""

from pathlib import Path

import pytest

from tests.integration.test_documents import blocks, shell

BEFORE = """
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from shop import delivery, remind
class Base(DeclarativeBase): pass
class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)
engine = create_engine("{store}")
Base.metadata.create_all(engine)
"""
AFTER = """
assert delivery.get(reminder.id)
print("waiting:", delivery.count())
delivery.close()
engine.dispose()
"""


@pytest.mark.long
def test_its_programs_and_commands_run(postgresql_url: str, rabbitmq_url: str, tmp_path: Path) -> None:
    app, per_task, transaction = blocks("docs/how-to/celery.md", "python")
    _install, _dispatch, drain = blocks("docs/how-to/celery.md", "bash")
    app = app.replace("postgresql+psycopg://localhost/app", postgresql_url).replace("amqp://localhost", rabbitmq_url)
    (tmp_path / "shop.py").write_text(f"{app}\n{per_task}")
    (tmp_path / "business.py").write_text(BEFORE.replace("{store}", postgresql_url) + transaction + AFTER)
    done = shell(f"python -W error business.py\n{drain}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "waiting: 2",
        "would store 0 of the tasks in 'celery'; 0 stay in the queue",
        "stored 0 of the tasks in 'celery'; 0 stay in the queue",
    ]
