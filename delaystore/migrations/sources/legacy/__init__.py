"""Tables of other programs that keep delayed messages: NServiceBus SQL persistence, its MSMQ transport, NHibernate."""

from delaystore.migrations.sources.legacy.msmq_sql import MsmqSqlShape
from delaystore.migrations.sources.legacy.nhibernate import NHibernateShape
from delaystore.migrations.sources.legacy.nservicebus_sql import NServiceBusSqlShape

__all__ = ["MsmqSqlShape", "NHibernateShape", "NServiceBusSqlShape"]
