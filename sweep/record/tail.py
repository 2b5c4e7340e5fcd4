"""Trials as their last reports left them: what a running trial reported is added to its row once a second only."""

from __future__ import annotations

import sqlite3

_RECENT = """
CREATE TEMP TABLE recent AS
    SELECT t.trial_id, t.count + count(*) AS count, max(r.seq) AS last_result,
        max(CASE WHEN r.effect & 2 THEN r.seq END) AS best_result, max(r.effect & 1) AS is_judged
    FROM main.report r JOIN main.trial t ON t.number = r.trial
    WHERE r.seq > ? AND r.seq > t.as_of GROUP BY r.trial
"""
_ADDED = {
    "count": "coalesce(p.count, t.count)",
    "judged_to": "CASE WHEN p.is_judged THEN p.count ELSE t.judged_to END",
    "losses": "CASE WHEN p.is_judged THEN 0 ELSE t.losses END",
    "node_losses": "CASE WHEN p.is_judged THEN 0 ELSE t.node_losses END",
    "last_result": "coalesce(p.last_result, t.last_result)",
    "best_result": "coalesce(p.best_result, t.best_result)",
    "as_of": "coalesce(p.last_result, t.as_of)",
}


def add_reports(connection: sqlite3.Connection) -> None:
    """Have `trial` mean, on this connection, the table with what was reported since its rows were written.

    To be called within a read transaction.
    """
    (progress,) = connection.execute("SELECT progress FROM tally").fetchone() or (0,)
    if connection.execute("SELECT 1 FROM report WHERE seq > ? LIMIT 1", (progress,)).fetchone() is None:
        return
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute(_RECENT, (progress,))
    names = [row[1] for row in connection.execute("PRAGMA main.table_info(trial)")]
    columns = ", ".join(f"{_ADDED.get(name, f't.{name}')} AS {name}" for name in names)
    connection.execute(
        f"CREATE TEMP VIEW trial AS SELECT {columns} FROM main.trial t LEFT JOIN temp.recent p USING (trial_id)"
    )
