"""Labels, ranks and checkboxes of tasks, and comments as they are searched.

With a million tasks it takes about half a minute.
"""

import json
import re

from database import fold

STATEMENTS = [
    'ALTER TABLE "milestone" ADD COLUMN "closed_at" TEXT',
    'ALTER TABLE "comment" ADD COLUMN "search" TEXT NOT NULL DEFAULT \'\'',
    'UPDATE "comment" SET "search" = folded("content")',
    'ALTER TABLE "task" ADD COLUMN "labels" TEXT NOT NULL DEFAULT \'[]\'',
    'ALTER TABLE "task" ADD COLUMN "label_keys" TEXT NOT NULL DEFAULT \'\'',
    'ALTER TABLE "task" ADD COLUMN "rank" TEXT NOT NULL DEFAULT \'\'',
    'ALTER TABLE "task" ADD COLUMN "checks" TEXT',
    'UPDATE "task" SET "rank" = PRINTF(\'%010d\', 5000000000 + "number"), "checks" = checkboxes("description")',
    'CREATE INDEX "task_rank" ON "task" ("rank")',
    'CREATE INDEX "task_project_rank" ON "task" ("project_id", "status", "rank", "id")',
    'CREATE INDEX "task_labels" ON "task" ("id", "label_keys", "labels", "project_id", "status", "assignee_id") WHERE ("labels" != \'[]\')',
]


def checkboxes(text):
    marks = re.findall(r"(?m)^[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+\[([ xX])\][ \t]", text or "")
    counts = {"done": len(marks) - marks.count(" "), "total": len(marks)}
    return json.dumps(counts, separators=(",", ":")) if marks else None


def up(migrator, db):
    db.connection().create_function("folded", 1, fold)
    db.connection().create_function("checkboxes", 1, checkboxes)
    for statement in STATEMENTS:
        db.execute_sql(statement)
