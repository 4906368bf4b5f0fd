"""First revision: the log's one table, append-only.

Databases older than the first revision have the table already and keep it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the table if it is missing, and the index that finds the streams."""
    if not sa.inspect(op.get_bind()).has_table("events"):
        _create()
    op.drop_index("ix_events_stream", "events", if_exists=True)
    first = sa.text("version = 1")
    op.create_index(
        "events_first",
        "events",
        ["stream"],
        postgresql_where=first,
        sqlite_where=first,
        if_not_exists=True,
    )


def _create() -> None:
    op.create_table(
        "events",
        sa.Column(
            "position",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("stream", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("schema", sa.Integer(), nullable=False),
        sa.Column("data", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("causation", sa.String(), nullable=True),
        sa.Column("correlation", sa.String(), nullable=True),
        sa.Column("recorded_at", sa.String(), nullable=False),
        sa.Column("code_version", sa.String(), nullable=False),
        sa.Column("prev_hash", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.UniqueConstraint("stream", "version"),
        sa.UniqueConstraint("event_id"),
        sa.UniqueConstraint("key"),
        sqlite_autoincrement=True,
    )
