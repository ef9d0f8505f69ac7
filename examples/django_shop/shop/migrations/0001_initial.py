"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Orders."""

    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("customer", models.CharField(max_length=100)),
                ("paid", models.BooleanField(default=False)),
            ],
        )
    ]
